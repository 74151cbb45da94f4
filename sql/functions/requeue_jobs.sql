-- Puts dead and held jobs back, and brings finished ones back from the ledger, where their end stays: as a recorded act
-- with a token of its own. The token goes on, it never restarts; the attempts begin anew.
--
--   requeued
--   live        it is waiting or running: there is nothing to requeue
--   exhausted   it has not two tokens left, one for this act and one for the next claim
--   not_found   or it was purged, and has no payload any more
--
-- The jobs' last ledger rows are locked, so that they are not retired meanwhile, and so that of two who bring
-- a job back at once the second finds it live. in_call_id names the call: sent again it finds what it did, even when
-- the job has run meanwhile, and does not do it a second time.
CREATE OR REPLACE FUNCTION faultline.requeue_jobs(in_bucket smallint, in_ids uuid[], in_who text, in_call_id uuid)
RETURNS TABLE (id uuid, status text, due_queue text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    rows     faultline.jobs[];
    lasts    faultline.ledger[];
    mine     uuid[];
    ids      uuid[];
BEGIN
    IF cardinality(in_ids) > 1000 OR array_position(in_ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a call is about 1000 jobs at most, and each has an id' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM (SELECT j.id FROM faultline.jobs j
                   WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) ORDER BY j.id FOR UPDATE) AS locked;
    PERFORM FROM (SELECT m.id FROM unnest(in_ids) AS m(id) ORDER BY m.id) AS mine
      CROSS JOIN LATERAL (
            SELECT l.job_id FROM faultline.ledger l
             WHERE l.bucket = in_bucket AND l.job_id = mine.id
             ORDER BY l.token DESC LIMIT 1 FOR UPDATE) AS locked;
    time_now := faultline.clock_now();
    -- From here on with snapshots that lie after the waits.
    mine := ARRAY(
        SELECT m.id FROM unnest(in_ids) AS m(id)
         CROSS JOIN LATERAL (
               SELECT l.job_id FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.job_id = m.id AND l.call_id = in_call_id AND l.outcome = 'requeued'
                LIMIT 1) AS own);
    rows := ARRAY(
        SELECT j FROM faultline.jobs j
         WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) AND j.queue <> '' AND j.id <> ALL (mine));
    lasts := ARRAY(
        SELECT l.last FROM unnest(in_ids) AS m(id)
         CROSS JOIN LATERAL (
               SELECT f AS last, f.state, f.outcome FROM faultline.ledger f
                WHERE f.bucket = in_bucket AND f.job_id = m.id
                ORDER BY f.token DESC LIMIT 1) AS l
         WHERE l.state IN ('succeeded', 'cancelled') AND l.outcome <> 'purged' AND m.id <> ALL (mine));

    ids := ARRAY(SELECT e.id FROM unnest(rows) AS e
                  WHERE e.state IN ('dead', 'held') AND e.token < 9223372036854775806);
    UPDATE faultline.jobs j
       SET state = 'available', token = j.token + 1, attempt = 0, requeues = j.requeues + 1, run_at = time_now,
           delayed = false, died_at = NULL
     WHERE j.bucket = in_bucket AND j.id = ANY (ids);
    INSERT INTO faultline.ledger (
           bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, ended_at, call_id)
    SELECT in_bucket, e.id, e.token + 1, 0, 'requeued', 'available', e.requeues + 1, e.queue, in_who, time_now, in_call_id
      FROM unnest(rows) AS e WHERE e.state IN ('dead', 'held') AND e.token < 9223372036854775806;
    INSERT INTO faultline.tallies (bucket, queue, available, held, dead)
    SELECT in_bucket, e.queue, count(*), -count(*) FILTER (WHERE e.state = 'held'),
           -count(*) FILTER (WHERE e.state = 'dead')
      FROM unnest(rows) AS e WHERE e.state IN ('dead', 'held') AND e.token < 9223372036854775806 GROUP BY e.queue;

    INSERT INTO faultline.jobs (bucket, id, token, requeues, queue, run_at, /*carried*/, encoding, payload)
    SELECT in_bucket, l.job_id, l.token + 1, l.requeues + 1, l.queue, time_now, /*carried l*/, l.encoding, l.payload
      FROM unnest(lasts) AS l WHERE l.token < 9223372036854775806;
    INSERT INTO faultline.ledger (
           bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, ended_at, call_id)
    SELECT in_bucket, l.job_id, l.token + 1, 0, 'requeued', 'available', l.requeues + 1, l.queue, in_who, time_now,
           in_call_id
      FROM unnest(lasts) AS l WHERE l.token < 9223372036854775806;
    INSERT INTO faultline.tallies (bucket, queue, available, succeeded, cancelled)
    SELECT in_bucket, l.queue, count(*), -count(*) FILTER (WHERE l.state = 'succeeded'),
           -count(*) FILTER (WHERE l.state = 'cancelled')
      FROM unnest(lasts) AS l WHERE l.token < 9223372036854775806 GROUP BY l.queue;

    RETURN QUERY
    SELECT m.id, CASE WHEN m.id = ANY (mine) THEN 'requeued'
                      WHEN coalesce(live.token, done.token) >= 9223372036854775806
                           AND (live.id IS NULL OR live.state IN ('dead', 'held')) THEN 'exhausted'
                      WHEN live.state IN ('dead', 'held') OR done.job_id IS NOT NULL THEN 'requeued'
                      WHEN live.id IS NOT NULL THEN 'live'
                      ELSE 'not_found' END,
           coalesce(live.queue, done.queue)
      FROM unnest(in_ids) AS m(id)
      LEFT JOIN LATERAL (
           SELECT e.id, e.state, e.token, e.queue FROM unnest(rows) AS e WHERE e.id = m.id LIMIT 1) AS live ON true
      LEFT JOIN LATERAL (
           SELECT l.job_id, l.token, l.queue FROM unnest(lasts) AS l WHERE l.job_id = m.id LIMIT 1) AS done ON true;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.requeue_jobs TO faultline_owner;
