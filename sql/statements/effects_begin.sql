-- Announces effects before they are run, under a good lease. Says of each whether it is new, was
-- recorded by an earlier attempt (with its value), or was begun and never recorded: then nobody knows
-- whether it happened. What does not come back was refused.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 keys
WITH held AS MATERIALIZED (
    SELECT j.id, j.token, j.lease_id, j.worker, j.lease_expires_at, mine.key
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[]) AS mine(id, token, lease_id, key)
      JOIN faultline.jobs j ON j.bucket = $1::smallint AND j.id = mine.id
     WHERE j.token = mine.token AND j.lease_id = mine.lease_id
       AND j.lease_expires_at > faultline.clock() AND j.cancel_requested_at IS NULL
       FOR UPDATE OF j
), begun AS (
    INSERT INTO faultline.effects (bucket, job_id, key, token, lease_id, worker)
    SELECT $1::smallint, h.id, h.key, h.token, h.lease_id, h.worker FROM held h
    ON CONFLICT (bucket, job_id, key) DO NOTHING
)
SELECT h.id, h.key, e.job_id IS NULL AS is_new, e.recorded_at IS NOT NULL AS recorded, e.result, e.token,
       e.worker, e.started_at,
       (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first)
  FROM held h
  LEFT JOIN faultline.effects e ON e.bucket = $1::smallint AND e.job_id = h.id AND e.key = h.key
