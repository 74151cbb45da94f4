-- Live jobs whose token is not the one that their history gives. Every token that was minted ends in one row of the
-- ledger: a claim when its attempt ends, an operator's act at once. So a job's token is the ledger's highest, or, while
-- an attempt runs, the one after it. A token that is behind could be given out a second time; one that is ahead has
-- lost an attempt's end.
--
-- Costs one walk over the live jobs with a look into the ledger for those that were tried before, and one over the ids of
-- both, in their order and without the tables where those were vacuumed.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s with token %s, and the last in the ledger is %s', j.state, j.token,
                  coalesce((SELECT max(l.token) FROM faultline.ledger l
                             WHERE l.bucket = $1::smallint AND l.job_id = j.id), 0)) AS detail
      FROM (SELECT b.id, b.state, b.token
              FROM faultline.jobs b
             WHERE b.bucket = $1::smallint AND b.queue <> '' AND b.token <> 0
               AND (b.token <> 1 OR b.state <> 'running')
               AND NOT EXISTS (SELECT FROM faultline.ledger l
                                WHERE l.bucket = $1::smallint AND l.job_id = b.id
                                  AND l.token = b.token - CASE b.state WHEN 'running' THEN 1 ELSE 0 END)
            UNION
            SELECT a.id, a.state, a.token
              FROM faultline.ledger l
              JOIN faultline.jobs a ON a.id = l.job_id
             WHERE l.bucket = $1::smallint AND a.bucket = $1::smallint AND a.queue <> ''
               AND l.token > a.token - CASE a.state WHEN 'running' THEN 1 ELSE 0 END) AS j
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
