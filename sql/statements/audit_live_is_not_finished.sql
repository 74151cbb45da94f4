-- Jobs that are live although their last row in the ledger says that they have finished: they would run again.
--
-- Costs one walk over the ledger and one over the ids of live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s with token %s, and the ledger says %s with token %s at %s', j.state, j.token, l.state, l.token,
                  l.ended_at) AS detail
      FROM faultline.ledger l
      JOIN faultline.jobs j ON j.id = l.job_id
     WHERE l.bucket = $1::smallint AND j.bucket = $1::smallint AND j.queue <> '' AND l.state IN ('succeeded', 'cancelled')
       AND NOT EXISTS (SELECT FROM faultline.ledger newer
                        WHERE newer.bucket = $1::smallint AND newer.job_id = l.job_id AND newer.token > l.token)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
