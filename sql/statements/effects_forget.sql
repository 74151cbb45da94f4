-- Takes back announced effects that certainly did not happen, under the good lease that announced them. One that
-- another attempt announced, or that was recorded, stays. What does not come back was refused.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 keys
WITH held AS MATERIALIZED (
    SELECT j.id, j.token, j.lease_id, j.lease_expires_at, mine.key
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[]) AS mine(id, token, lease_id, key)
     CROSS JOIN LATERAL (
           SELECT t.id, t.token, t.lease_id, t.lease_expires_at FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id AND t.lease_expires_at > faultline.clock()
              FOR UPDATE) AS j
), forgotten AS (
    DELETE FROM faultline.effects e
     USING held h
     -- The jobs twice, so that whichever side the planner begins with, it looks them up.
     WHERE e.bucket = $1::smallint AND e.job_id = ANY ($2::uuid[]) AND e.job_id = h.id AND e.key = h.key
       AND e.token = h.token AND e.lease_id = h.lease_id AND e.recorded_at IS NULL
)
SELECT h.id, h.key, (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first)
  FROM held h
