-- Rows of the ledger that say what cannot be: an outcome that does not lead where the row says the job went, an
-- attempt without a lease, an end that does not carry its job.
--
-- Costs one walk over the ledger.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT l.job_id::text AS subject,
           format('token %s %s, went to %s, lease %s, kind %s', l.token, l.outcome, l.state,
                  coalesce(l.lease_mark, 'none'), coalesce(l.kind, 'none')) AS detail
      FROM faultline.seen_ledger l
     WHERE l.bucket = $1::smallint
       AND (l.token < 1
            OR NOT CASE l.outcome
                       WHEN 'succeeded' THEN l.state = 'succeeded'
                       WHEN 'cancelled' THEN l.state = 'cancelled'
                       WHEN 'purged' THEN l.state = 'cancelled'
                       WHEN 'buried' THEN l.state = 'dead'
                       WHEN 'requeued' THEN l.state = 'available'
                       WHEN 'expired' THEN l.state IN ('available', 'dead', 'held')
                       ELSE l.state IN ('available', 'dead')
                   END
            OR (l.outcome NOT IN ('cancelled', 'requeued', 'purged') AND (l.lease_mark IS NULL OR l.started_at IS NULL))
            OR (l.state IN ('succeeded', 'cancelled') AND (l.kind IS NULL OR l.payload IS NULL OR l.run_at IS NULL)))
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
