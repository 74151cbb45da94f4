-- Announces effects before they are run, under a good lease. Says of each whether it is new, was
-- recorded by an earlier attempt (with its value), or was begun and never recorded: then nobody knows
-- whether it happened. What does not come back was refused.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 keys
WITH held AS MATERIALIZED (
    SELECT j.id, j.token, j.lease_id, j.worker, j.lease_expires_at, mine.key
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[]) AS mine(id, token, lease_id, key)
     CROSS JOIN LATERAL (
           SELECT t.id, t.token, t.lease_id, t.worker, t.lease_expires_at FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id
              AND t.lease_expires_at > faultline.clock() AND t.cancel_requested_at IS NULL
              FOR UPDATE) AS j
), begun AS (
    INSERT INTO faultline.effects (bucket, job_id, key, token, lease_id, worker)
    SELECT $1::smallint, h.id, h.key, h.token, h.lease_id, h.worker FROM held h
    ON CONFLICT (bucket, job_id, key) DO NOTHING
)
SELECT h.id, h.key, e.job_id IS NULL AS is_new, e.recorded_at IS NOT NULL AS recorded, e.result, e.token,
       e.worker, e.started_at,
       (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first)
  FROM held h
  LEFT JOIN LATERAL (
       SELECT * FROM faultline.effects x
        WHERE x.bucket = $1::smallint AND x.job_id = h.id AND x.key = h.key LIMIT 1) AS e ON true
