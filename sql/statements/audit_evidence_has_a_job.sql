-- Evidence about a job that is not on record, or of a token that the job had not reached: somebody has written it by hand, or
-- the job is gone and its evidence stayed.
--
-- Costs one walk over the evidence, with a look at the job and one into the ledger for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT s.job_id::text AS subject,
           format('%s of %s was refused at %s when the token was %s, and the last one of the job is %s', s.verb, s.worker, s.at,
                  coalesce(s.current_token::text, 'none'), coalesce(greatest(j.token, l.token)::text, 'none: it is not on record'))
               AS detail
      FROM faultline.stale_writes s
      LEFT JOIN faultline.jobs j ON j.bucket = $1::smallint AND j.id = s.job_id
      LEFT JOIN LATERAL (
           SELECT e.token FROM faultline.ledger e
            WHERE e.bucket = $1::smallint AND e.job_id = s.job_id
            ORDER BY e.token DESC LIMIT 1) AS l ON true
     WHERE s.bucket = $1::smallint
       AND (greatest(j.token, l.token) IS NULL OR s.current_token > greatest(j.token, l.token))
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
