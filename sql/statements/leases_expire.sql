-- The watchdog: ends the attempts whose lease has run out, through the same branch as a reported
-- failure. Any number of watchdogs may run it at the same time; a row is reaped once, because
--   * a claim's row in `grants` is taken by one of them (SKIP LOCKED), and
--   * the job row is locked, and found still to carry this lease and an expiry in the past, before it is
--     touched. A heartbeat or settlement that is under way holds the row: it is passed over until the
--     next sweep, and its grant stays.
-- $2 bounds a sweep, so that ten thousand expiries are worked off in batches.
--
-- A job that is to be cancelled ends as cancelled; at_most_once is buried; hold waits for a person.
--
-- $1 bucket  $2 claims to look at, at most
WITH ripe AS MATERIALIZED (
    SELECT g.check_at, g.lease_id, g.job_ids
      FROM faultline.grants g
     WHERE g.bucket = $1::smallint AND g.check_at <= faultline.clock()
     ORDER BY g.check_at, g.lease_id
     LIMIT $2::bigint
       FOR UPDATE SKIP LOCKED
), looked AS MATERIALIZED (
    -- One row per job of these claims; the rest is NULL for one that holds this lease no longer.
    SELECT ripe.check_at, ripe.lease_id, held.id AS live_id, held.lease_expires_at, gone.*
      FROM ripe
     CROSS JOIN LATERAL unnest(ripe.job_ids) AS taken(id)
      LEFT JOIN LATERAL (
           SELECT j.id, j.lease_expires_at FROM faultline.jobs j
            WHERE j.bucket = $1::smallint AND j.id = taken.id AND j.lease_id = ripe.lease_id) AS held ON true
      LEFT JOIN LATERAL (
           SELECT j.id, j.token, j.attempt, j.worker, j.claimed_at, j.requeues, j.queue, j.cancel_reason,
                  j.traceparent,
                  CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
                       WHEN j.delivery = 'hold' THEN 'held'
                       WHEN j.delivery = 'at_most_once' THEN 'dead'
                       ELSE faultline.state_after_failure(
                                j.attempt, coalesce(j.attempts_max, q.attempts_max), j.token)
                  END::faultline.job_state AS next_state,
                  faultline.clock() + faultline.backoff(
                      j.id, j.token, j.attempt, coalesce(j.backoff_base_ms, q.backoff_base_ms),
                      coalesce(j.backoff_max_ms, q.backoff_max_ms)) AS next_run_at,
                  q.key_retention_ms
             FROM faultline.jobs j
            CROSS JOIN LATERAL (
                  SELECT s.attempts_max, s.backoff_base_ms, s.backoff_max_ms, s.key_retention_ms
                    FROM faultline.queues s
                   WHERE s.bucket = $1::smallint AND s.name = j.queue LIMIT 1) AS q
            WHERE j.bucket = $1::smallint AND j.id = held.id
              AND j.lease_id = ripe.lease_id AND j.lease_expires_at <= faultline.clock()
              FOR UPDATE OF j SKIP LOCKED) AS gone ON held.lease_expires_at <= faultline.clock()
), returned AS (
    UPDATE faultline.jobs j
       SET state = looked.next_state,
           run_at = CASE looked.next_state WHEN 'available' THEN looked.next_run_at ELSE 'infinity' END,
           last_error = 'worker lease expired',
           worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL
      FROM looked
     WHERE j.bucket = $1::smallint AND j.id = looked.id AND looked.next_state <> 'cancelled'
), booked AS (
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, attempt, outcome, state, requeues, queue, worker, started_at, error)
    SELECT $1::smallint, l.id, l.token, l.lease_id, l.attempt, 'expired', l.next_state, l.requeues, l.queue,
           l.worker, l.claimed_at, 'worker lease expired'
      FROM looked l WHERE l.next_state <> 'cancelled'
), ended AS (
    DELETE FROM faultline.jobs j
     USING looked
     WHERE j.bucket = $1::smallint AND j.id = looked.id AND looked.next_state = 'cancelled'
    RETURNING j.*, looked.key_retention_ms
), finished AS (
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, attempt, outcome, state, requeues, queue, worker, started_at,
           error, /*carried*/, run_at, encoding, payload)
    SELECT $1::smallint, e.id, e.token, e.lease_id, e.attempt, 'cancelled', 'cancelled', e.requeues, e.queue,
           e.worker, e.claimed_at, e.cancel_reason, /*carried e*/, e.run_at, e.encoding, e.payload
      FROM ended e
), keyed AS (
    INSERT INTO faultline.idempotency_keys AS old (bucket, queue, key, job_id, fingerprint, expires_at)
    SELECT $1::smallint, k.queue, k.key, k.job_id, k.fingerprint,
           faultline.clock() + e.key_retention_ms * interval '1 millisecond'
      FROM ended e
     CROSS JOIN LATERAL (
           SELECT i.queue, i.key, i.job_id, i.fingerprint FROM faultline.idempotency_keys i
            WHERE i.bucket = $1::smallint AND i.queue = e.queue AND i.key = e.idempotency_key
              AND i.job_id = e.id
            LIMIT 1) AS k
     WHERE e.idempotency_key IS NOT NULL
    ON CONFLICT (bucket, queue, key) DO UPDATE SET expires_at = EXCLUDED.expires_at
     WHERE old.bucket = $1::smallint
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, running, available, held, dead, cancelled)
    SELECT $1::smallint, l.queue, -count(*), count(*) FILTER (WHERE l.next_state = 'available'),
           count(*) FILTER (WHERE l.next_state = 'held'), count(*) FILTER (WHERE l.next_state = 'dead'),
           count(*) FILTER (WHERE l.next_state = 'cancelled')
      FROM looked l WHERE l.id IS NOT NULL GROUP BY l.queue
), after AS MATERIALIZED (
    -- What each claim still holds, and when the first of these leases may run out.
    SELECT l.check_at, l.lease_id,
           min(l.lease_expires_at) FILTER (WHERE l.live_id IS NOT NULL AND l.id IS NULL) AS next_check_at,
           array_agg(l.live_id) FILTER (WHERE l.live_id IS NOT NULL AND l.id IS NULL) AS job_ids
      FROM looked l GROUP BY l.check_at, l.lease_id
), closed AS (
    -- One walk over the ripe claims, whatever the planner thinks; a join (and IN alone is one) might walk over all
    -- claims, once for each.
    DELETE FROM faultline.grants g
     WHERE g.bucket = $1::smallint AND g.check_at <= faultline.clock()
       AND (g.lease_id IN (SELECT r.lease_id FROM ripe r)) IS TRUE
    RETURNING g.lease_id
), kept AS (
    -- From the rows that are gone, because the new one may have the same key.
    INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)
    SELECT $1::smallint, a.next_check_at, a.lease_id, a.job_ids
      FROM closed c JOIN after a ON a.lease_id = c.lease_id
     WHERE a.next_check_at IS NOT NULL
)
-- The claims looked at come back as a count even where nothing had expired: a full sweep means that
-- there may be more.
SELECT (SELECT count(*) FROM ripe) AS claims_seen, l.id, l.token, l.worker, l.queue, l.attempt,
       l.next_state::text, l.lease_expires_at,
       l.next_state = 'available' AND l.next_run_at <= faultline.clock() AS due, l.traceparent
  FROM (SELECT 1) AS always
  LEFT JOIN looked l ON l.id IS NOT NULL
