-- Ends attempts whose job stays: failed (again later, or dead when its attempts are used up), buried,
-- snoozed, released. One statement changes the job and writes the ledger. Fenced like jobs_finish.
--
-- A snooze and a release give the attempt back; the token they never give back. A released job keeps
-- its place in the queue, so that another worker gets it at once.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 outcomes  $6 errors
-- $7 milliseconds until the next attempt; NULL: after a failure as the backoff says, else at once
-- $8 whether they are sent again
WITH held AS MATERIALIZED (
    SELECT j.id, j.token, j.lease_id, j.attempt, j.worker, j.claimed_at, j.lease_expires_at, j.requeues, j.queue,
           mine.outcome, mine.error,
           CASE mine.outcome
               WHEN 'failed' THEN faultline.state_after_failure(
                                      j.attempt, coalesce(j.attempts_max, q.attempts_max), j.token)
               WHEN 'buried' THEN 'dead'
               -- Without a token left there is no next attempt.
               ELSE faultline.state_after_failure(0, 1, j.token)
           END::faultline.job_state AS next_state,
           CASE WHEN mine.outcome = 'released' THEN j.run_at
                WHEN mine.delay_ms IS NOT NULL THEN
                    faultline.clock() + mine.delay_ms * interval '1 millisecond'
                WHEN mine.outcome = 'failed' THEN
                    faultline.clock() + faultline.backoff(
                        j.id, j.token, j.attempt, coalesce(j.backoff_base_ms, q.backoff_base_ms),
                        coalesce(j.backoff_max_ms, q.backoff_max_ms))
                ELSE faultline.clock()
           END AS next_run_at
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::faultline.outcome[], $6::text[], $7::bigint[])
           AS mine(id, token, lease_id, outcome, error, delay_ms)
     CROSS JOIN LATERAL (
           SELECT * FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id
              AND t.lease_expires_at > faultline.clock() AND t.cancel_requested_at IS NULL
              FOR UPDATE) AS j
     CROSS JOIN LATERAL (
           SELECT s.attempts_max, s.backoff_base_ms, s.backoff_max_ms FROM faultline.queues s
            WHERE s.bucket = $1::smallint AND s.name = j.queue LIMIT 1) AS q
), returned AS (
    UPDATE faultline.jobs j
       SET state = held.next_state,
           attempt = j.attempt - CASE WHEN held.outcome IN ('snoozed', 'released') THEN 1 ELSE 0 END,
           run_at = CASE held.next_state WHEN 'available' THEN held.next_run_at ELSE 'infinity' END,
           last_error = coalesce(held.error, j.last_error),
           worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL
      FROM held
     WHERE j.bucket = $1::smallint AND j.id = held.id AND held.token > 0 AND held.token <= 9223372036854775807
), booked AS (
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, attempt, outcome, state, requeues, queue, worker, started_at, error,
           resent)
    SELECT $1::smallint, h.id, h.token, h.lease_id, h.attempt, h.outcome, h.next_state, h.requeues, h.queue,
           h.worker, h.claimed_at, h.error, nullif($8::boolean, false)
      FROM held h
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, running, available, dead)
    SELECT $1::smallint, h.queue, -count(*), count(*) FILTER (WHERE h.next_state = 'available'),
           count(*) FILTER (WHERE h.next_state = 'dead')
      FROM held h GROUP BY h.queue
)
SELECT h.id, h.queue, h.next_state = 'available' AND h.next_run_at <= faultline.clock() AS due,
       (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first)
  FROM held h
