-- Jobs that are live although their last row in the ledger says that they have finished: they would run again.
--
-- Costs one look into the ledger's primary key for each live job.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, j.id::text AS subject,
       format('it is %s with token %s, and the ledger says %s with token %s at %s', j.state, j.token, last.state,
              last.token, last.ended_at) AS detail
  FROM faultline.jobs j
 CROSS JOIN LATERAL (
       SELECT l.state, l.token, l.ended_at FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = j.id
        ORDER BY l.token DESC LIMIT 1) AS last
 WHERE j.bucket = $1::smallint AND j.queue <> '' AND last.state IN ('succeeded', 'cancelled')
 ORDER BY j.id
 LIMIT $2::bigint
