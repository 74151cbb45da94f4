-- Cancels jobs. One that nobody runs ends here and now, with a token of its own. One that is running is
-- marked: it can no longer succeed, its worker learns of it at the next heartbeat, and it ends as
-- cancelled when the worker lets go or the lease runs out. A row that a claim has in hand is waited for
-- and then seen as running: a job never runs after it was said to be cancelled.
--
-- A job that does not come back is not live. `exhausted`: no token is left to end it with.
--
-- $1 bucket  $2 jobs  $3 who  $4 reason
WITH target AS MATERIALIZED (
    SELECT j.*, q.key_retention_ms
      FROM faultline.jobs j
     CROSS JOIN LATERAL (
           SELECT s.key_retention_ms FROM faultline.queues s
            WHERE s.bucket = $1::smallint AND s.name = j.queue LIMIT 1) AS q
     WHERE j.bucket = $1::smallint AND j.id = ANY ($2::uuid[])
     ORDER BY j.id
       FOR UPDATE OF j
), marked AS (
    UPDATE faultline.jobs j
       SET cancel_requested_at = faultline.clock(), cancel_reason = $4::text
      FROM target t
     WHERE j.bucket = $1::smallint AND j.id = t.id AND t.state = 'running' AND t.cancel_requested_at IS NULL
), ended AS (
    DELETE FROM faultline.jobs j
     USING target t
     WHERE j.bucket = $1::smallint AND j.id = t.id AND t.state <> 'running' AND t.token < 9223372036854775807
), booked AS (
    INSERT INTO faultline.ledger (
           bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, error, /*carried*/,
           run_at, encoding, payload)
    SELECT $1::smallint, t.id, t.token + 1, t.attempt, 'cancelled', 'cancelled', t.requeues, t.queue, $3::text,
           $4::text, /*carried t*/, t.run_at, t.encoding, t.payload
      FROM target t WHERE t.state <> 'running' AND t.token < 9223372036854775807
), keyed AS (
    INSERT INTO faultline.idempotency_keys AS old (bucket, queue, key, job_id, fingerprint, expires_at)
    SELECT $1::smallint, k.queue, k.key, k.job_id, k.fingerprint,
           faultline.clock() + t.key_retention_ms * interval '1 millisecond'
      FROM target t
     CROSS JOIN LATERAL (
           SELECT i.queue, i.key, i.job_id, i.fingerprint FROM faultline.idempotency_keys i
            WHERE i.bucket = $1::smallint AND i.queue = t.queue AND i.key = t.idempotency_key
              AND i.job_id = t.id
            LIMIT 1) AS k
     WHERE t.state <> 'running' AND t.token < 9223372036854775807 AND t.idempotency_key IS NOT NULL
    ON CONFLICT (bucket, queue, key) DO UPDATE SET expires_at = EXCLUDED.expires_at
     WHERE old.bucket = $1::smallint
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available, held, dead, cancelled)
    SELECT $1::smallint, t.queue, -count(*) FILTER (WHERE t.state = 'available'),
           -count(*) FILTER (WHERE t.state = 'held'), -count(*) FILTER (WHERE t.state = 'dead'), count(*)
      FROM target t WHERE t.state <> 'running' AND t.token < 9223372036854775807 GROUP BY t.queue
)
SELECT t.id, t.state = 'running' AS requested, t.state <> 'running' AND t.token = 9223372036854775807 AS exhausted
  FROM target t
