-- Live jobs whose token is not the one that their history gives. Every token that was minted ends in one row of the
-- ledger: a claim when its attempt ends, an operator's act at once. So a job's token is the ledger's highest, or, while
-- an attempt runs, the one after it. A token that is behind could be given out a second time; one that is ahead has
-- lost an attempt's end.
--
-- Costs one look into the ledger's primary key for each live job.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, j.id::text AS subject,
       format('it is %s with token %s, and the last in the ledger is %s', j.state, j.token,
              coalesce(last.token, 0)) AS detail
  FROM faultline.jobs j
  LEFT JOIN LATERAL (
       SELECT l.token FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = j.id
        ORDER BY l.token DESC LIMIT 1) AS last ON true
 WHERE j.bucket = $1::smallint AND j.queue <> ''
   -- Written as a difference, which cannot overflow.
   AND j.token - coalesce(last.token, 0) <> CASE j.state WHEN 'running' THEN 1 ELSE 0 END
 ORDER BY j.id
 LIMIT $2::bigint
