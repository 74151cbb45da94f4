-- The states of jobs and nothing else of them, for those who wait and look often: a payload may be large.
-- What does not come back is not known.
--
-- $1 bucket  $2 jobs
SELECT mine.id, coalesce(live.state, ended.state::text) AS state
  FROM unnest($2::uuid[]) AS mine(id)
  LEFT JOIN LATERAL (
       SELECT faultline.shown_state(j.state, j.run_at) AS state FROM faultline.jobs j
        WHERE j.bucket = $1::smallint AND j.id = mine.id AND j.queue <> '' LIMIT 1) AS live ON true
  LEFT JOIN LATERAL (
       SELECT l.state FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = mine.id
        ORDER BY l.token DESC LIMIT 1) AS ended ON true
 WHERE live.state IS NOT NULL OR ended.state IN ('succeeded', 'cancelled')
