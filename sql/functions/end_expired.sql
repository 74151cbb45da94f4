-- Ends attempts whose lease ran out, for expire_leases, which has locked and judged their rows.
CREATE OR REPLACE FUNCTION faultline.end_expired(in_bucket smallint, in_now timestamptz, in_rows faultline.jobs[])
RETURNS TABLE (
    id uuid, token bigint, worker text, queue text, attempt integer, next_state faultline.job_state,
    lease_expires_at timestamptz, due boolean, traceparent text)
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
DECLARE
    ids     uuid[];
    states  faultline.job_state[];
    run_ats timestamptz[];
BEGIN
    SELECT array_agg(n.id), array_agg(n.state),
           array_agg(CASE n.state WHEN 'available' THEN n.run_at ELSE 'infinity' END)
      INTO ids, states, run_ats
      FROM (
        SELECT e.id,
               CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'::faultline.job_state
                    WHEN e.delivery = 'hold' THEN 'held'
                    WHEN e.delivery = 'at_most_once' THEN 'dead'
                    ELSE faultline.state_after_failure(e.attempt, coalesce(e.attempts_max, q.attempts_max), e.token)
               END AS state,
               in_now + faultline.backoff(e.id, e.token, e.attempt, coalesce(e.backoff_base_ms, q.backoff_base_ms),
                                          coalesce(e.backoff_max_ms, q.backoff_max_ms)) AS run_at
          FROM unnest(in_rows) AS e
         CROSS JOIN LATERAL (
               SELECT s.attempts_max, s.backoff_base_ms, s.backoff_max_ms FROM faultline.queues s
                WHERE s.bucket = in_bucket AND s.name = e.queue LIMIT 1) AS q) AS n;
    UPDATE faultline.jobs j
       SET state = n.state, run_at = n.run_at, delayed = n.state = 'available' AND n.run_at > in_now,
           died_at = CASE WHEN n.state = 'dead' THEN in_now END, last_error = 'worker lease expired',
           worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL, granted_ttl_ms = NULL
      FROM unnest(ids, states, run_ats) AS n(id, state, run_at)
     WHERE j.bucket = in_bucket AND j.id = n.id AND n.state <> 'cancelled' AND n.run_at > '-infinity'
       AND n.run_at <= 'infinity';
    DELETE FROM faultline.jobs j
     USING unnest(ids, states, run_ats) AS n(id, state, run_at)
     WHERE j.bucket = in_bucket AND j.id = n.id AND n.state = 'cancelled' AND n.run_at > '-infinity'
       AND n.run_at <= 'infinity';
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, lease_expires_at, attempt, outcome, state, requeues, queue, worker,
           started_at, ended_at, error)
    SELECT in_bucket, e.id, e.token, e.lease_id, e.lease_expires_at, e.attempt, 'expired', e.next_state, e.requeues,
           e.queue, e.worker, e.claimed_at, in_now, 'worker lease expired'
      FROM unnest(states, in_rows) AS e(next_state) WHERE e.next_state <> 'cancelled';
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, lease_expires_at, attempt, outcome, state, requeues, queue, worker,
           started_at, ended_at, error, call_id, /*carried*/, run_at, encoding, payload)
    SELECT in_bucket, e.id, e.token, e.lease_id, e.lease_expires_at, e.attempt, 'cancelled', 'cancelled', e.requeues,
           e.queue, e.worker, e.claimed_at, in_now, e.cancel_reason, e.cancel_call_id, /*carried e*/, e.run_at,
           e.encoding, e.payload
      FROM unnest(states, in_rows) AS e(next_state) WHERE e.next_state = 'cancelled';
    INSERT INTO faultline.tallies (bucket, queue, running, available, delayed, held, dead, cancelled)
    SELECT in_bucket, e.queue, -count(*), count(*) FILTER (WHERE e.next_state = 'available'),
           count(*) FILTER (WHERE e.next_state = 'available' AND e.next_run_at > in_now),
           count(*) FILTER (WHERE e.next_state = 'held'), count(*) FILTER (WHERE e.next_state = 'dead'),
           count(*) FILTER (WHERE e.next_state = 'cancelled')
      FROM unnest(states, run_ats, in_rows) AS e(next_state, next_run_at) GROUP BY e.queue;
    RETURN QUERY
    SELECT e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at,
           e.next_run_at <= in_now, e.traceparent
      FROM unnest(states, run_ats, in_rows) AS e(next_state, next_run_at);
END
$$;
