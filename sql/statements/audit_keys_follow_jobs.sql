-- Idempotency keys that have a date of their own although their job is on record, so that a resubmission might be a
-- second job; keys without one although their job was retired, which nothing would ever retire; keys of a job that has
-- another one; and such as have lost their fingerprint.
--
-- Costs one walk over the keys, with a look at the job for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT format('%s in queue %s', k.key, k.queue) AS subject,
           CASE WHEN owner.known IS NULL AND k.expires_at IS NULL
                THEN format('it never expires, and its job %s is not on record', k.job_id)
                WHEN owner.known AND k.expires_at IS NOT NULL
                THEN format('it expires at %s, and its job %s is on record', k.expires_at, k.job_id)
                WHEN octet_length(k.fingerprint) <> 32 THEN 'its fingerprint is none'
                ELSE format('its job %s is in queue %s, with the key %s', k.job_id, owner.queue, coalesce(owner.key, 'none'))
           END AS detail
      FROM faultline.idempotency_keys k
      LEFT JOIN faultline.jobs j ON j.id = k.job_id AND j.bucket = $1::smallint
      LEFT JOIN LATERAL (
           SELECT l.queue, l.idempotency_key FROM faultline.ledger l
            WHERE l.bucket = $1::smallint AND l.job_id = k.job_id
            ORDER BY l.token DESC LIMIT 1) AS ended ON j.id IS NULL
     CROSS JOIN LATERAL (
           SELECT nullif(coalesce(j.queue, ended.queue) IS NOT NULL, false) AS known, coalesce(j.queue, ended.queue) AS queue,
                  CASE WHEN j.id IS NULL THEN ended.idempotency_key ELSE j.idempotency_key END AS key) AS owner
     WHERE k.bucket = $1::smallint
       AND (owner.known IS NULL AND k.expires_at IS NULL OR owner.known AND k.expires_at IS NOT NULL
            OR octet_length(k.fingerprint) <> 32
            OR owner.known AND (owner.queue <> k.queue OR owner.key IS DISTINCT FROM k.key))
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
