-- Rows of the ledger after one that finished the job, without a requeue in between: somebody acted on a job that had
-- ended.
--
-- Costs one walk over the ledger, and for each row that is not its job's first a look at the rows before it.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           format('token %s %s at %s, and token %s had finished it', l.token, l.outcome, l.ended_at, finished.token)
               AS detail
      FROM faultline.ledger l
     CROSS JOIN LATERAL (
           SELECT f.token FROM faultline.ledger f
            WHERE f.bucket = $1::smallint AND f.job_id = l.job_id AND f.token < l.token
              AND f.requeues = l.requeues AND f.state IN ('succeeded', 'cancelled')
            ORDER BY f.token LIMIT 1) AS finished
     WHERE l.bucket = $1::smallint AND l.token > 1
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
