-- Jobs that nobody runs and that are not where the last row of their ledger put them, which is the one with their own
-- token (audit_token_follows_ledger). One that finished is told by audit_live_is_not_finished.
--
-- Costs one walk over the live jobs, and for those that were tried before a look into the ledger.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s, and the ledger left it %s with token %s', j.state, l.state, l.token) AS detail
      FROM faultline.jobs j
      JOIN faultline.ledger l ON l.job_id = j.id AND l.token = j.token
     WHERE j.bucket = $1::smallint AND l.bucket = $1::smallint AND j.queue <> '' AND j.token > 0 AND j.state <> 'running'
       AND j.state <> l.state AND l.state NOT IN ('succeeded', 'cancelled')
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
