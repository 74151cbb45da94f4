-- Rows of the ledger that do not follow from the row before them: an attempt that is not the next one, an act that counts
-- attempts which there were not, another queue.
--
-- Costs one walk over the ledger, and for each row that is not its job's first a look at the one before it.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           CASE WHEN before.queue <> l.queue
                THEN format('token %s %s in queue %s, and before it was in %s', l.token, l.outcome, l.queue, before.queue)
                ELSE format('token %s %s in attempt %s, and before it was attempt %s, which %s', l.token, l.outcome, l.attempt,
                            coalesce(before.attempt::text, 'none'), coalesce(before.outcome::text, 'is none'))
           END AS detail
      FROM faultline.ledger l
      LEFT JOIN LATERAL (
           SELECT b.attempt, b.outcome, b.queue FROM faultline.ledger b
            WHERE l.token > 1 AND b.bucket = $1::smallint AND b.job_id = l.job_id AND b.token = l.token - 1) AS before ON true
     WHERE l.bucket = $1::smallint
       -- A gap is told by audit_ledger_has_no_gap.
       AND (l.token = 1 OR before.outcome IS NOT NULL)
       AND (before.queue <> l.queue
            OR CASE WHEN l.outcome = 'requeued' THEN l.attempt <> 0
                    ELSE l.attempt - CASE WHEN l.started_at IS NULL THEN 0 ELSE 1 END
                         NOT BETWEEN
                             CASE WHEN before.outcome IS NULL OR before.outcome = 'requeued' THEN 0
                                  WHEN before.outcome IN ('snoozed', 'released', 'expired') THEN before.attempt - 1
                                  ELSE before.attempt END
                         AND CASE WHEN before.outcome IS NULL OR before.outcome = 'requeued' THEN 0
                                  WHEN before.outcome IN ('snoozed', 'released') THEN before.attempt - 1
                                  ELSE before.attempt END
               END)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
