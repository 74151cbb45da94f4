-- Jobs whose last row in the ledger says that they wait, and that are not there: they are lost.
--
-- Costs one walk over the ledger, and for each row that did not finish its job a look at the rows after it.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           format('the ledger left it %s with token %s at %s, and it is nowhere', l.state, l.token, l.ended_at) AS detail
      FROM faultline.ledger l
     WHERE l.bucket = $1::smallint AND l.state NOT IN ('succeeded', 'cancelled')
       AND NOT EXISTS (SELECT FROM faultline.jobs j WHERE j.bucket = $1::smallint AND j.id = l.job_id)
       AND NOT EXISTS (SELECT FROM faultline.ledger newer
                        WHERE newer.bucket = $1::smallint AND newer.job_id = l.job_id AND newer.token > l.token)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
