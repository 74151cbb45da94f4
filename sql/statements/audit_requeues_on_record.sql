-- Jobs whose count of requeues changed without a requeue in the ledger. The count opens the way to another end of a
-- job, so only a recorded act may raise it.
--
-- Costs one walk over the ledger, for each row that is not its job's first a look at the one before it, and one look
-- for each live job that was requeued.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT wrong.job_id::text AS subject, wrong.detail
      FROM (SELECT l.job_id,
                   format('token %s %s with %s requeues, and before it were %s', l.token, l.outcome, l.requeues,
                          coalesce(before.requeues, 0)) AS detail
              FROM faultline.ledger l
             CROSS JOIN LATERAL (
                   SELECT CASE WHEN l.token > 1 THEN (SELECT b.requeues FROM faultline.ledger b
                                                       WHERE b.bucket = $1::smallint AND b.job_id = l.job_id AND b.token < l.token
                                                       ORDER BY b.token DESC LIMIT 1) END AS requeues) AS before
             WHERE l.bucket = $1::smallint
               AND l.requeues - coalesce(before.requeues, 0) <> CASE l.outcome WHEN 'requeued' THEN 1 ELSE 0 END
            UNION ALL
            SELECT j.id, format('it is %s with %s requeues, and the ledger has %s', j.state, j.requeues,
                                coalesce(last.requeues, 0))
              FROM faultline.jobs j
              LEFT JOIN LATERAL (
                   SELECT l.requeues FROM faultline.ledger l
                    WHERE l.bucket = $1::smallint AND l.job_id = j.id
                    ORDER BY l.token DESC LIMIT 1) AS last ON true
             WHERE j.bucket = $1::smallint AND j.queue <> '' AND j.token > 0
               AND j.requeues <> coalesce(last.requeues, 0)) AS wrong
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
