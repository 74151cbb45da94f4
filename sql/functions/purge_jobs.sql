-- Ends dead jobs for good, as a recorded act with a token of its own: the ledger keeps who did it and what became of
-- every attempt, until the queue's retention has passed; the payload goes at once.
--
--   purged
--   not_dead    it waits, runs, is held, or has ended
--   exhausted   it has no token left to end it with
--   not_found
--
-- in_call_id names the call: sent again it finds what it did, and says the same again.
CREATE OR REPLACE FUNCTION faultline.purge_jobs(in_bucket smallint, in_ids uuid[], in_who text, in_call_id uuid)
RETURNS TABLE (id uuid, status text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    rows     faultline.jobs[];
    ids      uuid[];
BEGIN
    IF cardinality(in_ids) > 1000 OR array_position(in_ids, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a call is about 1000 jobs at most, and each has an id' USING ERRCODE = 'FL400';
    END IF;
    SELECT array_agg(t.job) INTO rows
      FROM (SELECT j AS job FROM faultline.jobs j
             WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) AND j.queue <> ''
             ORDER BY j.id
               FOR UPDATE) AS t;
    time_now := faultline.clock_now();
    ids := ARRAY(SELECT e.id FROM unnest(rows) AS e WHERE e.state = 'dead' AND e.token < 9223372036854775807);
    DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (ids);
    INSERT INTO faultline.ledger (
           bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, ended_at, error, call_id,
           /*carried*/, run_at, encoding, payload)
    SELECT in_bucket, e.id, e.token + 1, e.attempt, 'purged', 'cancelled', e.requeues, e.queue, in_who, time_now,
           e.last_error, in_call_id, /*carried e*/, e.run_at, 'json', 'null'::bytea
      FROM unnest(rows) AS e WHERE e.state = 'dead' AND e.token < 9223372036854775807;
    INSERT INTO faultline.tallies (bucket, queue, dead, cancelled)
    SELECT in_bucket, e.queue, -count(*), count(*)
      FROM unnest(rows) AS e WHERE e.state = 'dead' AND e.token < 9223372036854775807 GROUP BY e.queue;
    RETURN QUERY
    SELECT m.id, CASE WHEN live.state = 'dead' AND live.token = 9223372036854775807 THEN 'exhausted'
                      WHEN live.state = 'dead' OR own.job_id IS NOT NULL THEN 'purged'
                      WHEN live.id IS NOT NULL OR known.job_id IS NOT NULL THEN 'not_dead'
                      ELSE 'not_found' END
      FROM unnest(in_ids) AS m(id)
      LEFT JOIN LATERAL (
           SELECT e.id, e.state, e.token FROM unnest(rows) AS e WHERE e.id = m.id LIMIT 1) AS live ON true
      LEFT JOIN LATERAL (
           SELECT l.job_id FROM faultline.ledger l
            WHERE l.bucket = in_bucket AND l.job_id = m.id AND l.call_id = in_call_id AND l.outcome = 'purged'
            LIMIT 1) AS own ON true
      LEFT JOIN LATERAL (
           SELECT l.job_id FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = m.id LIMIT 1) AS known ON true;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.purge_jobs TO faultline_owner;
