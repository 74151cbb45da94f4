-- Which of these jobs exist, live or ended: how a cancel tells a finished job from an unknown one. Not by EXISTS,
-- which the planner may answer by reading all jobs there are.
--
-- $1 bucket  $2 ids
SELECT mine.id
  FROM unnest($2::uuid[]) AS mine(id)
  LEFT JOIN LATERAL (
       SELECT j.id FROM faultline.jobs j WHERE j.bucket = $1::smallint AND j.id = mine.id AND j.queue <> '' LIMIT 1) AS live ON true
  LEFT JOIN LATERAL (
       SELECT l.job_id FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = mine.id LIMIT 1) AS ended ON true
 WHERE live.id IS NOT NULL OR ended.job_id IS NOT NULL
