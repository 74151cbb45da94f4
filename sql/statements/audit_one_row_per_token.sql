-- Tokens that stand twice in the ledger of a job: two attempts ended under one claim. The primary key says the same;
-- this sees it where the key was taken away.
--
-- Costs one walk over the ledger's primary key, in its order and without the table where that was vacuumed.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           format('token %s ended %s times', l.token, count(*)) AS detail
      FROM faultline.ledger l
     WHERE l.bucket = $1::smallint
     GROUP BY l.job_id, l.token
    HAVING count(*) > 1
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
