-- The effects that a job has announced and recorded, oldest first.
--
-- $1 bucket  $2 job
SELECT e.key, e.token, e.worker, e.started_at, e.recorded_at, e.result
  FROM faultline.effects e
 WHERE e.bucket = $1::smallint AND e.job_id = $2::uuid AND e.forgotten_at IS NULL
 ORDER BY e.started_at, e.key
