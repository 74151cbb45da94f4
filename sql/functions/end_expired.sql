-- Ends attempts whose lease ran out, for expire_leases, which has locked and judged their rows.
--
-- An attempt that is not known to have begun gives its number back, and the job its place in the queue, whatever its
-- delivery class: that a suspect begins, or a job that must not run twice, is on record before it does (claim_jobs). Of any
-- other job it is not certain, and so it is a suspect from now on: its next attempt counts.
CREATE OR REPLACE FUNCTION faultline.end_expired(in_bucket smallint, in_now timestamptz, in_rows faultline.jobs[])
RETURNS TABLE (
    id uuid, token bigint, worker text, queue text, attempt integer, next_state faultline.job_state,
    lease_expires_at timestamptz, due boolean, traceparent text, loss text)
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
DECLARE
    ids     uuid[];
    states  faultline.job_state[];
    run_ats timestamptz[];
    losses  text[];
BEGIN
    SELECT array_agg(n.id), array_agg(n.state),
           array_agg(CASE n.state WHEN 'available' THEN n.run_at ELSE 'infinity' END), array_agg(n.loss)
      INTO ids, states, run_ats, losses
      FROM (
        SELECT e.id, CASE WHEN NOT e.begun THEN 'unbegun' WHEN e.alone THEN 'alone' ELSE 'shared' END AS loss,
               CASE WHEN e.cancel_requested_at IS NOT NULL THEN 'cancelled'::faultline.job_state
                    WHEN NOT e.begun THEN faultline.state_after_failure(0, 1, e.token)
                    WHEN e.delivery = 'hold' THEN 'held'
                    WHEN e.delivery = 'at_most_once' THEN 'dead'
                    ELSE faultline.state_after_failure(e.attempt, coalesce(e.attempts_max, q.attempts_max), e.token)
               END AS state,
               CASE WHEN e.begun
                    THEN in_now + faultline.backoff(
                             e.id, e.token, e.attempt, coalesce(e.backoff_base_ms, q.backoff_base_ms),
                             coalesce(e.backoff_max_ms, q.backoff_max_ms))
                    ELSE e.run_at END AS run_at
          FROM unnest(in_rows) AS e
         CROSS JOIN LATERAL (
               SELECT s.attempts_max, s.backoff_base_ms, s.backoff_max_ms FROM faultline.queues s
                WHERE s.bucket = in_bucket AND s.name = e.queue LIMIT 1) AS q) AS n;
    UPDATE faultline.jobs j
       SET state = n.state, run_at = n.run_at, delayed = n.state = 'available' AND n.run_at > in_now,
           died_at = CASE WHEN n.state = 'dead' THEN in_now END,
           last_error = faultline.loss_error(n.loss), attempt = j.attempt - CASE n.loss WHEN 'unbegun' THEN 1 ELSE 0 END,
           suspect = j.suspect OR j.begun OR j.delivery = 'at_least_once', begun = true, alone = false,
           worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL, granted_ttl_ms = NULL
      FROM unnest(ids, states, run_ats, losses) AS n(id, state, run_at, loss)
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
           e.queue, e.worker, e.claimed_at, in_now, faultline.loss_error(e.loss)
      FROM unnest(states, losses, in_rows) AS e(next_state, loss) WHERE e.next_state <> 'cancelled';
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, lease_expires_at, attempt, outcome, state, requeues, queue, worker,
           started_at, ended_at, error, call_id, /*carried*/, run_at, encoding, payload)
    SELECT in_bucket, e.id, e.token, e.lease_id, e.lease_expires_at, e.attempt, 'cancelled', 'cancelled', e.requeues,
           e.queue, e.worker, e.claimed_at, in_now, e.cancel_reason, e.cancel_call_id, /*carried e*/, e.run_at,
           e.encoding, e.payload
      FROM unnest(states, in_rows) AS e(next_state) WHERE e.next_state = 'cancelled';
    INSERT INTO faultline.tallies (bucket, queue, running, available, delayed, retrying, held, dead, cancelled, failures)
    SELECT in_bucket, e.queue, -count(*), count(*) FILTER (WHERE e.next_state = 'available'),
           count(*) FILTER (WHERE e.next_state = 'available' AND e.next_run_at > in_now),
           count(*) FILTER (WHERE e.next_state = 'available' AND e.next_run_at > in_now
                              AND e.attempt > CASE e.loss WHEN 'unbegun' THEN 1 ELSE 0 END),
           count(*) FILTER (WHERE e.next_state = 'held'), count(*) FILTER (WHERE e.next_state = 'dead'),
           count(*) FILTER (WHERE e.next_state = 'cancelled'),
           count(*) FILTER (WHERE e.next_state <> 'cancelled' AND e.loss <> 'unbegun')
      FROM unnest(states, run_ats, losses, in_rows) AS e(next_state, next_run_at, loss) GROUP BY e.queue;
    RETURN QUERY
    SELECT e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at,
           e.next_run_at <= in_now, e.traceparent, e.loss
      FROM unnest(states, run_ats, losses, in_rows) AS e(next_state, next_run_at, loss);
END
$$;
