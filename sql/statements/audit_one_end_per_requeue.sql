-- Jobs that finished more than once without a requeue in between: two commits. The index ledger_finished says the
-- same; this sees it where the index was taken away.
--
-- Costs one walk over that index, in its order and without the table where that was vacuumed.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           format('it finished %s times after %s requeues, in queue %s', count(*), l.requeues, l.queue) AS detail
      FROM faultline.ledger l
     WHERE l.bucket = $1::smallint AND l.state IN ('succeeded', 'cancelled')
     GROUP BY l.queue, l.job_id, l.requeues
    HAVING count(*) > 1
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
