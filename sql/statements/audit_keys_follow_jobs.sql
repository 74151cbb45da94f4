-- Idempotency keys that have a date of their own although their job is on record, so that a resubmission might be a
-- second job; and keys without one although their job was retired, which nothing would ever retire.
--
-- Costs one walk over the keys, with a look at the job for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT format('%s in queue %s', k.key, k.queue) AS subject,
           CASE WHEN k.expires_at IS NULL THEN format('it never expires, and its job %s is not on record', k.job_id)
                ELSE format('it expires at %s, and its job %s is on record', k.expires_at, k.job_id) END AS detail
      FROM faultline.idempotency_keys k
      LEFT JOIN faultline.jobs j ON j.id = k.job_id AND j.bucket = $1::smallint
      LEFT JOIN LATERAL (
           SELECT l.job_id FROM faultline.ledger l WHERE l.bucket = $1::smallint AND l.job_id = k.job_id LIMIT 1) AS ended
           ON true
     WHERE k.bucket = $1::smallint
       AND (j.id IS NULL AND ended.job_id IS NULL) <> (k.expires_at IS NOT NULL)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
