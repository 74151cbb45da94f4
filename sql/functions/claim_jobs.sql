-- Takes due jobs of one queue and grants their leases. Nobody can ever hold the same job twice:
--
--   * The first statement picks rows that are available and locks them. SKIP LOCKED passes over a row that
--     another claim has in hand, and a row that another claim finished with while we came is read again in
--     its newest version, found to be running, and dropped.
--   * The update turns exactly these rows, under these locks, into running ones with a new token, this
--     claim's lease id and an expiry. Both are one transaction: there is no moment in which anybody sees a row
--     that is taken and has no lease.
--   * The sub-select holds the only LIMIT and is run once, since an aggregate stands above it. As an IN (…)
--     subquery the planner may run it more than once and lock more rows than were asked for.
--
-- Each priority is looked at by a short walk of jobs_due that begins after the last job found there
-- (in_since, in_since_ids) and ends at the clock: neither scheduled jobs nor the dead index entries of long ago
-- are walked over. The store looks from the beginning (-infinity) now and then, for late commits.
--
-- The update names no indexed column, so it is heap-only: a claim writes to no index of jobs.
--
-- Each try of a claim has a lease id of its own: an answer that is lost leaves leases that nobody holds, and that run
-- out; it never leaves two claims that look like one.
--
-- A queue with a cap is claimed from in turns, under its row's lock, because the count of running jobs must not move
-- between counting and claiming. in_wait: wait for the turn, though no longer than any verb waits. `busy` says that somebody
-- else has it. No row at all: there is no such queue.
--
-- A job counts as begun, unless its worker says by itself when it begins. in_ahead: the jobs of this claim may wait there.
-- in_suspects_max, where given: at most so many of them are suspects, and the worker puts on record that it begins one of
-- these, or a job that must not run twice, before it does. So a claim whose answer is lost costs no such job its life.
--
-- A claim brings 16 MiB of payloads, or one job: all of them are in the memory of the server at once, and in the caller's.
-- `more` says that it ended there, and that the next one finds others.
CREATE OR REPLACE FUNCTION faultline.claim_jobs(
    in_bucket smallint, in_queue text, in_worker text, in_lease_id uuid, in_limit bigint,
    in_priorities smallint[], in_since timestamptz[], in_since_ids uuid[], in_wait boolean, in_ahead boolean,
    in_suspects_max bigint)
RETURNS TABLE (
    paused boolean, busy boolean, more boolean, id uuid, lease_expires_at timestamptz, token bigint, attempt integer,
    attempts_max integer, priority smallint, run_at timestamptz, created_at timestamptz, lease_ttl_ms integer,
    run_max_ms bigint, requeues integer, encoding faultline.encoding, delivery faultline.delivery, kind text,
    payload bytea, tags text[], traceparent text, suspect boolean)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    place     record;
    time_now  timestamptz := faultline.clock_now();
    jobs_max  bigint := in_limit;
    bytes_max bigint := 16777216;
    ids       uuid[];
    ttls      integer[];
    delayed   uuid[];
    suspects  boolean[];
    sizes     bigint[];
    bytes     bigint;
    retried   uuid[];
    later     bigint := 0;
    again     bigint := 0;
    ends      timestamptz[];
    first_end timestamptz;
BEGIN
    IF in_ahead IS NULL OR in_lease_id IS NULL OR in_limit IS NULL OR in_limit NOT BETWEEN 1 AND 1000 OR in_worker IS NULL
       OR octet_length(in_worker) NOT BETWEEN 1 AND 128 THEN
        RAISE EXCEPTION 'a claim has a lease id, a worker of 1 to 128 bytes, and a limit of 1 to 1000 jobs'
            USING ERRCODE = 'FL400';
    END IF;
    -- A claim that a crash forgets would give its token out a second time.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    SELECT q.paused, q.running_max, q.lease_ttl_ms, q.attempts_max INTO place
      FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_queue;
    IF NOT FOUND THEN
        RETURN;
    END IF;

    IF place.running_max IS NOT NULL AND NOT place.paused THEN
        BEGIN
            IF in_wait THEN
                PERFORM FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_queue FOR UPDATE;
            ELSE
                PERFORM FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_queue FOR UPDATE SKIP LOCKED;
            END IF;
            busy := NOT FOUND;
        EXCEPTION WHEN lock_not_available THEN
            busy := true;
        END;
        IF busy THEN
            paused := false;
            more := false;
            RETURN NEXT;
            RETURN;
        END IF;
        -- A statement of its own, so that it sees what is true after the wait.
        SELECT q.paused, q.running_max, q.lease_ttl_ms, q.attempts_max, c.running, c.differences INTO place
          FROM faultline.queues q
         CROSS JOIN LATERAL (
               SELECT coalesce(sum(t.running), 0) AS running, count(*) AS differences FROM faultline.tallies t
                WHERE t.bucket = in_bucket AND t.queue = in_queue) AS c
         WHERE q.bucket = in_bucket AND q.name = in_queue;
        -- Every claim adds them all up, and others wait for their turn meanwhile: where the watchdog does not keep up,
        -- each claim folds more of them than it adds.
        IF place.differences > 1000 THEN
            PERFORM faultline.fold_queue(in_bucket, in_queue, 1000);
        END IF;
        jobs_max := least(in_limit, greatest(0, coalesce(place.running_max - place.running, in_limit)));
    END IF;

    IF NOT place.paused AND jobs_max > 0 THEN
        SELECT array_agg(due.id), array_agg(due.ttl_ms), array_agg(due.id) FILTER (WHERE due.delayed),
               array_agg(due.id) FILTER (WHERE due.delayed AND due.attempt > 0), array_agg(due.suspect), array_agg(due.size),
               sum(due.size)
          INTO ids, ttls, delayed, retried, suspects, sizes, bytes
          FROM (SELECT found.id, found.delayed, found.attempt, found.suspect, found.size,
                       least(coalesce(found.lease_ttl_ms, place.lease_ttl_ms), found.run_max_ms)::integer AS ttl_ms
                  FROM unnest(in_priorities) WITH ORDINALITY AS look(priority, nr)
                 CROSS JOIN LATERAL (
                       SELECT j.id, j.lease_ttl_ms, j.run_max_ms, j.delayed, j.attempt, j.suspect,
                              octet_length(j.payload)::bigint AS size
                         FROM faultline.jobs j
                        WHERE j.bucket = in_bucket AND j.queue = in_queue AND j.priority = look.priority
                          AND j.priority >= 0 AND (j.run_at, j.id) > (in_since[look.nr], in_since_ids[look.nr])
                          AND j.run_at <= time_now AND j.state = 'available'
                          AND (NOT j.suspect OR in_suspects_max IS DISTINCT FROM 0)
                        ORDER BY j.run_at, j.id
                        LIMIT jobs_max
                          FOR UPDATE SKIP LOCKED) AS found
                 LIMIT jobs_max) AS due;
    END IF;
    more := coalesce(bytes > bytes_max AND cardinality(ids) > 1, false);
    IF more OR true = ANY (suspects) AND in_suspects_max IS NOT NULL THEN
        -- The others are left for the next claim: they were locked for a moment.
        SELECT array_agg(d.id), array_agg(d.ttl_ms), array_agg(d.id) FILTER (WHERE d.id = ANY (delayed)),
               array_agg(d.id) FILTER (WHERE d.id = ANY (retried))
          INTO ids, ttls, delayed, retried
          FROM (SELECT f.*, count(*) FILTER (WHERE f.suspect) OVER (ORDER BY f.nr) AS suspects,
                       sum(f.size) OVER (ORDER BY f.nr) AS bytes
                  FROM unnest(ids, ttls, suspects, sizes) WITH ORDINALITY AS f(id, ttl_ms, suspect, size, nr)) AS d
         WHERE (NOT d.suspect OR in_suspects_max IS NULL OR d.suspects <= in_suspects_max)
           AND (d.bytes <= bytes_max OR d.nr = 1);
    END IF;
    IF ids IS NULL THEN
        paused := place.paused;
        busy := false;
        RETURN NEXT;
        RETURN;
    END IF;

    -- The lease begins now that its row is locked, and so after the end of the lease before it. It never outlives
    -- the job's maximum run time.
    time_now := faultline.clock_now();
    SELECT array_agg(time_now + ttl.ms * interval '1 millisecond'), min(time_now + ttl.ms * interval '1 millisecond')
      INTO ends, first_end FROM unnest(ttls) AS ttl(ms);
    INSERT INTO faultline.grants AS g (bucket, check_at, lease_id, job_ids)
    VALUES (in_bucket, first_end, in_lease_id, ids)
    ON CONFLICT (bucket, check_at, lease_id) DO UPDATE
       -- This very claim, delivered twice: both are watched.
       SET job_ids = g.job_ids || EXCLUDED.job_ids
     WHERE g.bucket = in_bucket;
    RETURN QUERY
    UPDATE faultline.jobs j
       SET state = 'running', token = j.token + 1, attempt = j.attempt + 1, worker = in_worker,
           lease_id = in_lease_id, claimed_at = time_now, lease_expires_at = ends[due.nr],
           granted_ttl_ms = coalesce(j.lease_ttl_ms, place.lease_ttl_ms), progress = NULL, progress_note = NULL,
           begun = NOT (in_ahead OR in_suspects_max IS NOT NULL AND (j.suspect OR j.delivery <> 'at_least_once')),
           alone = false
      FROM unnest(ids) WITH ORDINALITY AS due(id, nr)
      -- That each has a number says nothing about jobs and much to the planner: that few rows come from here, each to be
      -- looked up by its key.
     WHERE j.bucket = in_bucket AND j.id = due.id AND due.nr > 0 AND due.nr <= 1000
    RETURNING false, false, more, j.id, j.lease_expires_at, j.token, j.attempt, coalesce(j.attempts_max, place.attempts_max),
              j.priority, j.run_at, j.created_at, j.granted_ttl_ms, j.run_max_ms, j.requeues, j.encoding, j.delivery,
              j.kind, j.payload, j.tags, j.traceparent, j.suspect;
    -- The rows that were taken are counted: a caller that names a priority twice finds its jobs twice.
    GET DIAGNOSTICS jobs_max = ROW_COUNT;
    IF delayed IS NOT NULL THEN
        SELECT count(DISTINCT d.id), count(DISTINCT d.id) FILTER (WHERE d.id = ANY (retried)) INTO later, again
          FROM unnest(delayed) AS d(id);
    END IF;
    INSERT INTO faultline.tallies (bucket, queue, available, delayed, retrying, running)
    VALUES (in_bucket, in_queue, -jobs_max, -later, -again, jobs_max);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.claim_jobs TO faultline_owner, faultline_worker;
