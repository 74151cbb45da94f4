-- Idempotency keys that expire although their job lives, so that a resubmission would be a second job; and keys that
-- never expire although their job is gone.
--
-- Costs one walk over the keys, with a look at the job for each.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, format('%s in queue %s', k.key, k.queue) AS subject,
       CASE WHEN k.expires_at IS NULL THEN format('it never expires, and its job %s is not live', k.job_id)
            ELSE format('it expires at %s, and its job %s lives', k.expires_at, k.job_id) END AS detail
  FROM faultline.idempotency_keys k
  LEFT JOIN faultline.jobs j ON j.id = k.job_id AND j.bucket = $1::smallint
 WHERE k.bucket = $1::smallint AND (j.id IS NULL) <> (k.expires_at IS NOT NULL)
 ORDER BY k.queue, k.key
 LIMIT $2::bigint
