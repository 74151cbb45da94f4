-- Live jobs that count another number of attempts than their history gives: one that is too low is tried more often than it
-- may be, one that is too high dies early. A snooze and a release give the attempt back; so does the end of a lease under which
-- nothing had begun, of which the ledger does not tell.
--
-- Costs one walk over the live jobs, with a look into the ledger for those that were tried before.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s in attempt %s, and the one before was attempt %s, which %s', j.state, j.attempt,
                  coalesce(l.attempt::text, 'none'), coalesce(l.outcome::text, 'is none')) AS detail
      FROM faultline.jobs j
      LEFT JOIN faultline.ledger l
             ON l.bucket = $1::smallint AND l.job_id = j.id
                AND l.token = j.token - CASE j.state WHEN 'running' THEN 1 ELSE 0 END
     WHERE j.bucket = $1::smallint AND j.queue <> '' AND (j.attempt <> 0 OR j.token <> 0)
       -- One whose last row is missing is told by audit_token_follows_ledger.
       AND (l.job_id IS NOT NULL OR j.token = CASE j.state WHEN 'running' THEN 1 ELSE 0 END)
       AND j.attempt - CASE j.state WHEN 'running' THEN 1 ELSE 0 END
           NOT BETWEEN
               CASE WHEN l.outcome IS NULL OR l.outcome = 'requeued' THEN 0
                    WHEN l.outcome IN ('snoozed', 'released', 'expired') THEN l.attempt - 1
                    ELSE l.attempt END
           AND CASE WHEN l.outcome IS NULL OR l.outcome = 'requeued' THEN 0
                    WHEN l.outcome IN ('snoozed', 'released') THEN l.attempt - 1
                    ELSE l.attempt END
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
