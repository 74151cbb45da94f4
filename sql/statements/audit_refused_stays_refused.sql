-- Leases that were refused as superseded or run out, and whose attempt succeeded later all the same: the fence let a
-- stale writer through. Which came first is told by tokens, not by the clock, which may have been set back: a lease that had
-- succeeded is refused so only after a requeue, and then the job's token was the requeue's or a later one.
--
-- Costs one walk over the evidence, with two looks into the ledger for each.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT s.job_id::text AS subject,
           format('token %s of %s was refused at %s (%s), and succeeded at %s', s.token, s.worker, s.at, s.reason,
                  l.ended_at) AS detail
      FROM faultline.seen_stale_writes s
      JOIN faultline.seen_ledger l ON l.job_id = s.job_id AND l.token = s.token AND l.lease_mark = s.lease_mark
     WHERE s.bucket = $1::smallint AND l.bucket = $1::smallint
       AND s.reason IN ('token_mismatch', 'lease_expired') AND l.outcome = 'succeeded'
       AND NOT EXISTS (SELECT FROM faultline.ledger r
                        WHERE r.bucket = $1::smallint AND r.job_id = s.job_id AND r.outcome = 'requeued'
                          AND r.token > s.token AND r.token <= s.current_token)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
