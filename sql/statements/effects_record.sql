-- Records what effects gave, under a good lease. A value that is recorded stays: the first one wins and
-- comes back.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 keys  $6 results
WITH held AS MATERIALIZED (
    SELECT j.id, j.token, j.lease_id, j.worker, j.lease_expires_at, mine.key, mine.result
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::bytea[])
           AS mine(id, token, lease_id, key, result)
     CROSS JOIN LATERAL (
           SELECT t.id, t.token, t.lease_id, t.worker, t.lease_expires_at FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id
              AND t.lease_expires_at > faultline.clock() AND t.cancel_requested_at IS NULL
              FOR UPDATE) AS j
), recorded AS (
    INSERT INTO faultline.effects AS e (bucket, job_id, key, token, lease_id, worker, recorded_at, result)
    SELECT $1::smallint, h.id, h.key, h.token, h.lease_id, h.worker, faultline.clock(), h.result FROM held h
    ON CONFLICT (bucket, job_id, key) DO UPDATE
       SET token = EXCLUDED.token, lease_id = EXCLUDED.lease_id, worker = EXCLUDED.worker,
           recorded_at = EXCLUDED.recorded_at, result = EXCLUDED.result
     WHERE e.bucket = $1::smallint AND e.recorded_at IS NULL
)
SELECT h.id, h.key, coalesce(e.recorded_at IS NULL, true) AS is_new,
       CASE WHEN e.recorded_at IS NOT NULL THEN e.result ELSE h.result END AS result,
       (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first)
  FROM held h
  LEFT JOIN LATERAL (
       SELECT * FROM faultline.effects x
        WHERE x.bucket = $1::smallint AND x.job_id = h.id AND x.key = h.key LIMIT 1) AS e ON true
