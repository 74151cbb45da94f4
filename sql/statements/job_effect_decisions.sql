-- What people have said about a job's effects that were begun and never recorded, oldest first.
--
-- $1 bucket  $2 job
SELECT d.key, d.token, d.happened, d.decided_at, d.decided_by, d.reason
  FROM faultline.effect_decisions d
 WHERE d.bucket = $1::smallint AND d.job_id = $2::uuid
 ORDER BY d.decided_at, d.key, d.token
