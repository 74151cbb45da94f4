-- Keeps the counts cheap to read: folds up to in_tallies_max differences into one row per queue, and takes the mark from up
-- to in_jobs_max delayed jobs whose time has come. Readers see the same numbers before and after. Answers whether there
-- is more to do.
--
-- It waits for nobody, and nobody for it but for a moment: what somebody else has in hand is passed over. Two folds at once
-- take different rows, and the sum is the same.
CREATE OR REPLACE FUNCTION faultline.fold_tallies(in_bucket smallint, in_jobs_max bigint, in_tallies_max bigint)
RETURNS boolean
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    ids      uuid[];
    queues   text[];
    attempts integer[];
    one      text;
    room     bigint := in_tallies_max;
BEGIN
    IF coalesce(in_jobs_max, 0) < 1 OR coalesce(in_tallies_max, 0) < 2 THEN
        RAISE EXCEPTION 'a fold looks at 1 job and 2 differences at least' USING ERRCODE = 'FL400';
    END IF;
    FOR one IN
        SELECT q.name FROM faultline.queues q
         CROSS JOIN LATERAL (
               SELECT t.id FROM faultline.tallies t
                WHERE t.bucket = in_bucket AND t.queue = q.name OFFSET 1 LIMIT 1) AS second
         WHERE q.bucket = in_bucket
    LOOP
        room := room - faultline.fold_queue(in_bucket, one, room);
        EXIT WHEN room < 2;
    END LOOP;
    -- Last, so that nobody who needs one of these jobs waits for the rest. Also those that run by now, so that nobody has to
    -- look at them a second time; they are in no count of waiting jobs.
    SELECT array_agg(o.id), array_agg(o.queue) FILTER (WHERE o.state = 'available'),
           array_agg(o.attempt) FILTER (WHERE o.state = 'available')
      INTO ids, queues, attempts
      FROM (SELECT j.id, j.queue, j.state, j.attempt FROM faultline.jobs j
             WHERE j.bucket = in_bucket AND j.delayed AND j.run_at <= time_now
             ORDER BY j.run_at, j.id
             LIMIT in_jobs_max
               FOR UPDATE SKIP LOCKED) AS o;
    IF ids IS NOT NULL THEN
        UPDATE faultline.jobs j SET delayed = false WHERE j.bucket = in_bucket AND j.id = ANY (ids);
        INSERT INTO faultline.tallies (bucket, queue, delayed, retrying)
        SELECT in_bucket, q.name, -count(*), -count(*) FILTER (WHERE q.attempt > 0)
          FROM unnest(queues, attempts) AS q(name, attempt) GROUP BY q.name;
    END IF;
    RETURN room < 2 OR coalesce(cardinality(ids), 0) >= in_jobs_max;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.fold_tallies TO faultline_owner, faultline_worker;
