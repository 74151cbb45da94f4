-- Cancels jobs. One that nobody runs ends here and now, with a token of its own. One that is running is marked: it can no
-- longer succeed, its worker learns of it at the next heartbeat, and it ends as cancelled when the worker lets go or the
-- lease runs out. A row that a claim has in hand is waited for and then seen as running: a job never runs after it was
-- said to be cancelled.
--
--   cancelled   it was waiting, and has ended
--   requested   it is running, and is marked
--   finished    it had ended before
--   exhausted   it has no token left to end it with
--   not_found
--
-- in_call_id names the call: sent again it finds what it did, and says the same again.
CREATE OR REPLACE FUNCTION faultline.cancel_jobs(
    in_bucket smallint, in_ids uuid[], in_who text, in_reason text, in_call_id uuid)
RETURNS TABLE (id uuid, status text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    rows     faultline.jobs[];
    mine     uuid[];
    ids      uuid[];
BEGIN
    IF cardinality(in_ids) > 1000 OR array_position(in_ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a call is about 1000 jobs at most, and each has an id' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM (SELECT j.id FROM faultline.jobs j
                   WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) ORDER BY j.id FOR UPDATE) AS locked;
    time_now := faultline.clock_now();
    -- From here on with snapshots that lie after the wait. What this call has cancelled before it leaves alone: somebody
    -- may have requeued the job since.
    mine := ARRAY(
        SELECT m.id FROM unnest(in_ids) AS m(id)
         CROSS JOIN LATERAL (
               SELECT l.job_id FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.job_id = m.id AND l.call_id = in_call_id AND l.outcome = 'cancelled'
                LIMIT 1) AS own);
    rows := ARRAY(
        SELECT j FROM faultline.jobs j
         WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) AND j.queue <> '' AND j.id <> ALL (mine));
    ids := ARRAY(SELECT e.id FROM unnest(rows) AS e WHERE e.state = 'running' AND e.cancel_requested_at IS NULL);
    UPDATE faultline.jobs j
       SET cancel_requested_at = time_now, cancel_reason = in_reason, cancel_call_id = in_call_id
     WHERE j.bucket = in_bucket AND j.id = ANY (ids);
    ids := ARRAY(SELECT e.id FROM unnest(rows) AS e WHERE e.state <> 'running' AND e.token < 9223372036854775807);
    DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (ids);
    INSERT INTO faultline.ledger (
           bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, ended_at, error, call_id,
           /*carried*/, run_at, encoding, payload)
    SELECT in_bucket, e.id, e.token + 1, e.attempt, 'cancelled', 'cancelled', e.requeues, e.queue, in_who, time_now,
           in_reason, in_call_id, /*carried e*/, e.run_at, e.encoding, e.payload
      FROM unnest(rows) AS e WHERE e.state <> 'running' AND e.token < 9223372036854775807;
    INSERT INTO faultline.tallies (bucket, queue, available, delayed, retrying, held, dead, cancelled)
    SELECT in_bucket, e.queue, -count(*) FILTER (WHERE e.state = 'available'),
           -count(*) FILTER (WHERE e.state = 'available' AND e.delayed),
           -count(*) FILTER (WHERE e.state = 'available' AND e.delayed AND e.attempt > 0),
           -count(*) FILTER (WHERE e.state = 'held'), -count(*) FILTER (WHERE e.state = 'dead'), count(*)
      FROM unnest(rows) AS e WHERE e.state <> 'running' AND e.token < 9223372036854775807 GROUP BY e.queue;
    RETURN QUERY
    SELECT m.id, CASE WHEN live.state = 'running' THEN 'requested'
                      WHEN live.token = 9223372036854775807 THEN 'exhausted'
                      WHEN live.id IS NOT NULL THEN 'cancelled'
                      -- Ended, by a call of this very name: at once, or as it had asked for.
                      WHEN own.lease_id IS NOT NULL THEN 'requested'
                      WHEN own.job_id IS NOT NULL THEN 'cancelled'
                      WHEN known.job_id IS NOT NULL THEN 'finished'
                      ELSE 'not_found' END
      FROM unnest(in_ids) AS m(id)
      LEFT JOIN LATERAL (
           SELECT e.id, e.state, e.token FROM unnest(rows) AS e WHERE e.id = m.id LIMIT 1) AS live ON true
      LEFT JOIN LATERAL (
           SELECT l.job_id, l.lease_id FROM faultline.ledger l
            WHERE l.bucket = in_bucket AND l.job_id = m.id AND l.call_id = in_call_id AND l.outcome = 'cancelled'
            LIMIT 1) AS own ON true
      LEFT JOIN LATERAL (
           SELECT l.job_id FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = m.id LIMIT 1) AS known ON true;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.cancel_jobs TO faultline_owner;
