-- Live jobs whose idempotency key names another job, or none: the same submission would be added a second time.
--
-- Costs one walk over the live jobs, with a look at the key for those that have one.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('its key %s in queue %s names %s', j.idempotency_key, j.queue, coalesce('job ' || k.job_id, 'no job')) AS detail
      FROM faultline.jobs j
      LEFT JOIN faultline.idempotency_keys k
             ON k.bucket = $1::smallint AND k.queue = j.queue AND k.key = j.idempotency_key
     WHERE j.bucket = $1::smallint AND j.queue <> '' AND j.idempotency_key IS NOT NULL AND k.job_id IS DISTINCT FROM j.id
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
