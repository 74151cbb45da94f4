-- Rows of the ledger that say what cannot be: an outcome that does not lead where the row says the job went, an
-- attempt without a lease or an act with one, an end that does not carry its job, a row that carries one and is no end.
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
            OR (l.outcome NOT IN ('cancelled', 'requeued', 'purged') AND (NOT l.has_lease OR l.started_at IS NULL))
            OR (l.has_lease AND num_nulls(l.started_at, l.lease_expires_at, l.worker) > 0)
            OR (NOT l.has_lease AND num_nonnulls(l.started_at, l.lease_expires_at) > 0)
            OR (l.outcome IN ('requeued', 'purged') AND l.has_lease)
            OR (l.state IN ('succeeded', 'cancelled')
                AND num_nulls(l.kind, l.payload, l.run_at, l.priority, l.delivery, l.encoding, l.created_at) > 0)
            OR (l.state NOT IN ('succeeded', 'cancelled')
                AND num_nonnulls(l.kind, l.payload, l.run_at, l.priority, l.delivery, l.encoding, l.created_at) > 0)
            OR (l.result IS NOT NULL AND l.state NOT IN ('succeeded', 'cancelled'))
            OR l.attempt < 0 OR l.requeues < 0 OR NOT isfinite(l.ended_at) OR NOT isfinite(l.started_at))
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
