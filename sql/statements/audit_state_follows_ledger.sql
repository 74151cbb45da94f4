-- Jobs that nobody runs and that are not where the last row of their ledger put them. One that finished is told by
-- audit_live_is_not_finished.
--
-- Costs one look into the ledger's primary key for each live job.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, j.id::text AS subject,
       format('it is %s, and the ledger left it %s with token %s', j.state, last.state, last.token) AS detail
  FROM faultline.jobs j
 CROSS JOIN LATERAL (
       SELECT l.state, l.token FROM faultline.ledger l
        WHERE l.bucket = $1::smallint AND l.job_id = j.id
        ORDER BY l.token DESC LIMIT 1) AS last
 WHERE j.bucket = $1::smallint AND j.queue <> '' AND j.state <> 'running' AND j.state <> last.state
   AND last.state NOT IN ('succeeded', 'cancelled')
 ORDER BY j.id
 LIMIT $2::bigint
