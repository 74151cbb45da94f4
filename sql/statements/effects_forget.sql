-- Takes back an announced effect that certainly did not happen, under the good lease that announced it. One that
-- another attempt announced, or that was recorded, stays. No row: the lease is not good, and nothing was done.
--
-- One effect, because a batch would be joined, and the effects are few enough that the planner might walk them all.
--
-- $1 bucket  $2 job  $3 token  $4 lease id  $5 key
WITH held AS MATERIALIZED (
    SELECT j.id, j.lease_expires_at
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.id = $2::uuid AND j.token = $3::bigint AND j.lease_id = $4::uuid
       AND j.lease_expires_at > faultline.clock()
       FOR UPDATE
), forgotten AS (
    DELETE FROM faultline.effects e
     WHERE e.bucket = $1::smallint AND e.job_id = $2::uuid AND e.key = $5::text
       AND e.token = $3::bigint AND e.lease_id = $4::uuid AND e.recorded_at IS NULL
       AND EXISTS (SELECT FROM held)
)
SELECT h.id, faultline.still_in_time(h.lease_expires_at) FROM held h
