-- Tokens of a job that are missing from its ledger, between 1 and the last one there: an attempt was granted, or an
-- act done, and its end was never written down.
--
-- Costs one walk over the ledger's primary key, in its order and without the table where that was vacuumed.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT each.job_id::text AS subject,
           format('token %s is followed by token %s', each.before, each.token) AS detail
      FROM (SELECT l.job_id, l.token, coalesce(lag(l.token) OVER (PARTITION BY l.job_id ORDER BY l.token), 0) AS before
              FROM faultline.ledger l
             WHERE l.bucket = $1::smallint) AS each
     WHERE each.token - each.before > 1
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
