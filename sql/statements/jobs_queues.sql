-- The queues that jobs belong to, live ones and ended ones, for those who may see some queues and not others: looked up by
-- key, without a payload. What does not come back is not known.
--
-- $1 bucket  $2 jobs
SELECT mine.id, coalesce(live.queue, ended.queue) AS queue
  FROM unnest($2::uuid[]) AS mine(id)
  LEFT JOIN LATERAL (
       SELECT j.queue FROM faultline.jobs j
        WHERE j.bucket = $1::smallint AND j.id = mine.id AND j.queue <> '' LIMIT 1) AS live ON true
  LEFT JOIN LATERAL (
       SELECT l.queue FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = mine.id
        ORDER BY l.token DESC LIMIT 1) AS ended ON true
 WHERE live.queue IS NOT NULL OR ended.queue IS NOT NULL
