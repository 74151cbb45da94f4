-- Ends attempts, each by an outcome of its own: one that finishes the job (succeeded, cancelled), or one after which it
-- stays (failed: again later, or dead when its attempts are used up; buried; snoozed; released). Answers each with
-- `committed`, or with the verdict of judge_writes.
--
-- The fence is in the DELETE and in the locking SELECT: a row is taken only if it still carries this token and this lease
-- id and the lease has not run out. A row that somebody holds is waited for and then read again in its newest version;
-- and whether a lease ran out during the wait is judged after it, by the clock of that moment.
--
-- A job that finishes leaves `jobs` and stands, whole, in the ledger. It is deleted first, and the rows travel in an
-- array: a lock, a copy and then a delete would write to each row twice. One whose lease ran out during the wait is put
-- back as it was, which is as rare as it sounds.
--
-- So their payloads are in the memory of the server, a few times over. A call whose jobs have more than 16 MiB of these is
-- done in halves, and these in theirs, in one transaction all the same. Most tables hold no
-- large payloads: these are told by their size, without a look at the jobs (compressed, a payload is a hundredth of itself
-- at best).
--
-- A job that is to be cancelled cannot succeed any more, nor fail: whatever its worker says ends it as cancelled, and is
-- on record as a refused write.
--
-- A snooze and a release give the attempt back; the token they never give back. A released job keeps its place in the
-- queue, so that another worker gets it at once.
--
-- in_ids ascend, so that two of these wait for each other in one order. in_workers and in_outcomes have one element per
-- job, or one for all; in_results, in_errors and in_delays_ms (until the next attempt) may be NULL. A delay that is not
-- given is the backoff after a failure, and none otherwise. in_writers, where given, has one element per job: the API key
-- by which a server ends it, for the record.
CREATE OR REPLACE FUNCTION faultline.settle_jobs(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[],
    in_outcomes faultline.outcome[], in_results bytea[], in_errors text[], in_delays_ms bigint[], in_writers text[])
RETURNS TABLE (
    id uuid, status text, reason faultline.stale_reason, current_token bigint, current_worker text,
    current_state faultline.job_state, due_queue text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now  timestamptz := faultline.clock_now();
    size      integer := cardinality(in_ids);
    bytes_max bigint := 16777216;
    bytes     bigint;
    finishing boolean;
    staying   boolean;
    rows      faultline.jobs[];
    outcomes  faultline.outcome[];
    results   bytea[];
    errors    text[];
    delays    bigint[];
    writers   text[];
    states    faultline.job_state[];
    run_ats   timestamptz[];
    attempts  integer[];
    ids       uuid[];
    numbers   bigint[];
    done      uuid[] := '{}';
    first_end timestamptz;
    one_queue text;
    succeeded bigint;
    marked    boolean;
    tokens    bigint[];
    lease_ids uuid[];
    workers   text[];
    verbs     text[];
    verdicts  faultline.verdict[];
BEGIN
    IF in_outcomes IS NULL
       OR NOT (in_outcomes <@ '{succeeded,failed,buried,snoozed,released,cancelled}'::faultline.outcome[]) THEN
        RAISE EXCEPTION 'an attempt ends as succeeded, failed, buried, snoozed, released or cancelled'
            USING ERRCODE = 'FL400';
    END IF;
    IF coalesce(size, 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM size
       OR cardinality(in_lease_ids) IS DISTINCT FROM size OR coalesce(cardinality(in_workers), 0) NOT IN (1, size)
       OR cardinality(in_outcomes) NOT IN (1, size) OR cardinality(in_results) <> size OR cardinality(in_errors) <> size
       OR cardinality(in_delays_ms) <> size OR cardinality(in_writers) <> size THEN
        RAISE EXCEPTION 'the arrays of a settlement have one element per job, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF NOT (0 <= ALL (in_delays_ms)) OR NOT (315360000000 >= ALL (in_delays_ms)) THEN
        RAISE EXCEPTION 'a delay is 0 to 3650 days' USING ERRCODE = 'FL400';
    END IF;
    IF in_writers IS NOT NULL THEN
        IF EXISTS (SELECT FROM unnest(in_writers) AS w(writer) WHERE octet_length(w.writer) > 256) THEN
            RAISE EXCEPTION 'who writes has a name of at most 256 bytes' USING ERRCODE = 'FL400';
        END IF;
    END IF;
    -- What is acknowledged is on disk.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF size > 16 AND pg_relation_size((SELECT c.reltoastrelid FROM pg_class c WHERE c.oid = 'faultline.jobs'::regclass))
                     > bytes_max / 100 THEN
        SELECT sum(octet_length(j.payload)) INTO bytes
          FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (in_ids);
        IF bytes > bytes_max THEN
            RETURN QUERY
            SELECT s.*
              FROM (VALUES (1, size / 2), (size / 2 + 1, size)) AS half(first, last)
             CROSS JOIN LATERAL faultline.settle_jobs(
                   in_bucket, in_ids[half.first:half.last], in_tokens[half.first:half.last],
                   in_lease_ids[half.first:half.last],
                   CASE cardinality(in_workers) WHEN 1 THEN in_workers ELSE in_workers[half.first:half.last] END,
                   CASE cardinality(in_outcomes) WHEN 1 THEN in_outcomes ELSE in_outcomes[half.first:half.last] END,
                   in_results[half.first:half.last], in_errors[half.first:half.last],
                   in_delays_ms[half.first:half.last], in_writers[half.first:half.last]) AS s;
            RETURN;
        END IF;
    END IF;
    finishing := in_outcomes && '{succeeded,cancelled}'::faultline.outcome[];
    staying := NOT (in_outcomes <@ '{succeeded,cancelled}'::faultline.outcome[]);
    IF finishing AND staying THEN
        -- Two statements are going to lock rows: all of them now, in one order.
        PERFORM FROM (SELECT j.id FROM faultline.jobs j
                       WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) ORDER BY j.id FOR UPDATE) AS locked;
    END IF;

    IF staying THEN
        SELECT array_agg(j.job), array_agg(j.id), array_agg(coalesce(mine.outcome, in_outcomes[1])),
               array_agg(mine.error), array_agg(mine.delay_ms), array_agg(mine.writer)
          INTO rows, ids, outcomes, errors, delays, writers
          FROM unnest(in_ids, in_tokens, in_lease_ids, in_outcomes, in_errors, in_delays_ms, in_writers)
               AS mine(id, token, lease_id, outcome, error, delay_ms, writer)
         CROSS JOIN LATERAL (
               SELECT t AS job, t.id FROM faultline.jobs t
                WHERE t.bucket = in_bucket AND t.id = mine.id AND t.token = mine.token
                  AND t.lease_id = mine.lease_id AND t.lease_expires_at > time_now
                  AND t.cancel_requested_at IS NULL
                  FOR UPDATE) AS j
         WHERE coalesce(mine.outcome, in_outcomes[1]) NOT IN ('succeeded', 'cancelled');
        IF ids IS NOT NULL THEN
            time_now := faultline.clock_now();
            SELECT array_agg(n.state), array_agg(CASE n.state WHEN 'available' THEN n.run_at ELSE 'infinity' END),
                   array_agg(n.attempt), array_agg(n.id) FILTER (WHERE n.in_time), array_agg(CASE WHEN n.in_time THEN n.id END)
              INTO states, run_ats, attempts, done, ids
              FROM (
                SELECT e.id, e.lease_expires_at > time_now AS in_time,
                       e.attempt - CASE WHEN e.outcome IN ('snoozed', 'released') THEN 1 ELSE 0 END AS attempt,
                       CASE e.outcome
                           WHEN 'failed' THEN faultline.state_after_failure(
                                                  e.attempt, coalesce(e.attempts_max, q.attempts_max), e.token)
                           WHEN 'buried' THEN 'dead'
                           -- Without a token left there is no next attempt.
                           ELSE faultline.state_after_failure(0, 1, e.token)
                       END AS state,
                       CASE WHEN e.outcome = 'released' THEN e.run_at
                            WHEN e.delay_ms IS NOT NULL THEN time_now + e.delay_ms * interval '1 millisecond'
                            WHEN e.outcome = 'failed' THEN
                                time_now + faultline.backoff(
                                    e.id, e.token, e.attempt, coalesce(e.backoff_base_ms, q.backoff_base_ms),
                                    coalesce(e.backoff_max_ms, q.backoff_max_ms))
                            ELSE time_now
                       END AS run_at
                  FROM unnest(outcomes, delays, rows) AS e(outcome, delay_ms)
                 CROSS JOIN LATERAL (
                       SELECT s.attempts_max, s.backoff_base_ms, s.backoff_max_ms FROM faultline.queues s
                        WHERE s.bucket = in_bucket AND s.name = e.queue LIMIT 1) AS q) AS n;
            done := coalesce(done, '{}');
            UPDATE faultline.jobs j
               SET state = n.state, attempt = n.attempt, run_at = n.run_at,
                   -- Only what ended by itself is above suspicion.
                   suspect = j.suspect AND n.outcome = 'released',
                   delayed = n.state = 'available' AND n.run_at > time_now,
                   died_at = CASE WHEN n.state = 'dead' THEN time_now END, last_error = coalesce(n.error, j.last_error),
                   worker = NULL, lease_id = NULL, lease_expires_at = NULL, claimed_at = NULL, granted_ttl_ms = NULL
              FROM unnest(ids, states, attempts, run_ats, errors, outcomes) AS n(id, state, attempt, run_at, error, outcome)
             WHERE j.bucket = in_bucket AND j.id = n.id AND n.attempt >= 0 AND n.attempt < 2147483647;
            INSERT INTO faultline.ledger (
                   bucket, job_id, token, lease_id, lease_expires_at, attempt, outcome, state, requeues, queue, worker,
                   started_at, ended_at, error, written_by)
            SELECT in_bucket, e.id, e.token, e.lease_id, e.lease_expires_at, e.attempt, e.outcome, e.next_state,
                   e.requeues, e.queue, e.worker, e.claimed_at, time_now, e.error, e.writer
              FROM unnest(ids, outcomes, states, errors, writers, rows) AS e(acted, outcome, next_state, error, writer)
             WHERE e.acted IS NOT NULL;
            INSERT INTO faultline.tallies (bucket, queue, running, available, delayed, retrying, dead, failures)
            SELECT in_bucket, e.queue, -count(*), count(*) FILTER (WHERE e.next_state = 'available'),
                   count(*) FILTER (WHERE e.next_state = 'available' AND e.next_run_at > time_now),
                   count(*) FILTER (WHERE e.next_state = 'available' AND e.next_run_at > time_now AND e.next_attempt > 0),
                   count(*) FILTER (WHERE e.next_state = 'dead'),
                   count(*) FILTER (WHERE e.outcome IN ('failed', 'buried'))
              FROM unnest(ids, states, run_ats, attempts, outcomes, rows)
                   AS e(acted, next_state, next_run_at, next_attempt, outcome)
             WHERE e.acted IS NOT NULL GROUP BY e.queue;
            RETURN QUERY
            SELECT e.id, 'committed', NULL::faultline.stale_reason, NULL::bigint, NULL::text, NULL::faultline.job_state,
                   CASE WHEN e.next_run_at <= time_now THEN e.queue END
              FROM unnest(ids, run_ats, rows) AS e(acted, next_run_at)
             WHERE e.acted IS NOT NULL;
        END IF;
    END IF;

    WITH taken AS (
        DELETE FROM faultline.jobs j
         USING (SELECT n.id, n.nr, in_tokens[n.nr] AS token, in_lease_ids[n.nr] AS lease_id,
                       coalesce(in_outcomes[n.nr], in_outcomes[1]) AS outcome
                  FROM unnest(in_ids) WITH ORDINALITY AS n(id, nr)) AS mine
         -- That a token is above 0 and below the last one says nothing about jobs and much to the planner: that few
         -- rows come from the caller, each to be looked up by its key.
         WHERE mine.token > 0 AND mine.token <= 9223372036854775807
           AND j.bucket = in_bucket AND j.id = mine.id AND j.token = mine.token AND j.lease_id = mine.lease_id
           AND j.lease_expires_at > time_now
           AND (mine.outcome IN ('succeeded', 'cancelled') OR j.cancel_requested_at IS NOT NULL)
        RETURNING j AS job, j.id, j.lease_expires_at, j.queue, j.cancel_requested_at, mine.nr, mine.outcome)
    SELECT array_agg(t.job), array_agg(t.id), array_agg(t.nr), min(t.lease_expires_at),
           CASE WHEN min(t.queue) = max(t.queue) THEN min(t.queue) END,
           count(*) FILTER (WHERE t.outcome = 'succeeded'), bool_or(t.cancel_requested_at IS NOT NULL)
      INTO rows, ids, numbers, first_end, one_queue, succeeded, marked FROM taken t;

    IF ids IS NOT NULL THEN
        time_now := faultline.clock_now();
        IF first_end <= time_now THEN
            INSERT INTO faultline.jobs SELECT e.* FROM unnest(rows) AS e WHERE e.lease_expires_at <= time_now;
            ids := ARRAY(SELECT e.id FROM unnest(rows) AS e WHERE e.lease_expires_at > time_now);
            one_queue := NULL;
        END IF;
        done := done || ids;
        INSERT INTO faultline.ledger (
               bucket, job_id, token, lease_id, lease_expires_at, attempt, outcome, state, requeues, queue, worker,
               started_at, ended_at, error, result, call_id, written_by, /*carried*/, run_at, encoding, payload)
        SELECT in_bucket, e.id, e.token, e.lease_id, e.lease_expires_at, e.attempt,
               CASE WHEN e.cancel_requested_at IS NULL THEN e.outcome ELSE 'cancelled' END,
               CASE WHEN e.cancel_requested_at IS NULL AND e.outcome = 'succeeded'
                    THEN 'succeeded'::faultline.job_state ELSE 'cancelled' END,
               e.requeues, e.queue, e.worker, e.claimed_at, time_now,
               CASE WHEN e.cancel_requested_at IS NULL OR e.outcome = 'cancelled'
                    THEN coalesce(in_errors[e.nr], e.cancel_reason) ELSE e.cancel_reason END,
               CASE WHEN e.cancel_requested_at IS NULL THEN in_results[e.nr] END, e.cancel_call_id, in_writers[e.nr],
               /*carried e*/, e.run_at, e.encoding, e.payload
          FROM (SELECT r.*, numbers[r.ordinality] AS nr, coalesce(in_outcomes[numbers[r.ordinality]], in_outcomes[1]) AS outcome
                  FROM unnest(rows) WITH ORDINALITY AS r) AS e
         WHERE e.lease_expires_at > time_now;
        IF one_queue IS NOT NULL AND NOT marked THEN
            INSERT INTO faultline.tallies (bucket, queue, running, succeeded, cancelled)
            VALUES (in_bucket, one_queue, -cardinality(ids), succeeded, cardinality(ids) - succeeded);
        ELSE
            INSERT INTO faultline.tallies (bucket, queue, running, succeeded, cancelled)
            SELECT in_bucket, e.queue, -count(*),
                   count(*) FILTER (WHERE e.outcome = 'succeeded' AND e.cancel_requested_at IS NULL),
                   count(*) FILTER (WHERE e.outcome <> 'succeeded' OR e.cancel_requested_at IS NOT NULL)
              FROM (SELECT r.*, coalesce(in_outcomes[numbers[r.ordinality]], in_outcomes[1]) AS outcome
                      FROM unnest(rows) WITH ORDINALITY AS r) AS e
             WHERE e.lease_expires_at > time_now GROUP BY e.queue;
        END IF;
        IF NOT marked THEN
            RETURN QUERY
            SELECT d.id, 'committed', NULL::faultline.stale_reason, NULL::bigint, NULL::text,
                   NULL::faultline.job_state, NULL::text
              FROM unnest(ids) AS d(id);
        ELSE
            INSERT INTO faultline.stale_writes (
                   bucket, job_id, at, verb, reason, queue, token, lease_id, worker,
                   current_token, current_worker, current_state, lease_expired_at)
            SELECT in_bucket, e.id, time_now, faultline.verb_of(e.outcome), 'cancelled', e.queue, e.token, e.lease_id,
                   e.worker, e.token, e.worker, 'running', e.lease_expires_at
              FROM (SELECT r.*, coalesce(in_outcomes[numbers[r.ordinality]], in_outcomes[1]) AS outcome
                      FROM unnest(rows) WITH ORDINALITY AS r) AS e
             WHERE e.lease_expires_at > time_now AND e.cancel_requested_at IS NOT NULL AND e.outcome <> 'cancelled';
            RETURN QUERY
            SELECT e.id, CASE WHEN e.refused THEN 'stale' ELSE 'committed' END,
                   CASE WHEN e.refused THEN 'cancelled'::faultline.stale_reason END,
                   CASE WHEN e.refused THEN e.token END, CASE WHEN e.refused THEN e.worker END,
                   CASE WHEN e.refused THEN 'running'::faultline.job_state END, NULL::text
              FROM (SELECT x.id, x.token, x.worker, x.cancel_requested_at IS NOT NULL AND x.outcome <> 'cancelled' AS refused
                      FROM (SELECT r.*, coalesce(in_outcomes[numbers[r.ordinality]], in_outcomes[1]) AS outcome
                              FROM unnest(rows) WITH ORDINALITY AS r) AS x
                     WHERE x.lease_expires_at > time_now) AS e;
        END IF;
    END IF;

    IF cardinality(done) >= cardinality(in_ids) THEN
        RETURN;
    END IF;
    SELECT array_agg(m.id), array_agg(m.token), array_agg(m.lease_id), array_agg(coalesce(m.worker, in_workers[1])),
           array_agg(coalesce(m.outcome, in_outcomes[1])), array_agg(faultline.verb_of(coalesce(m.outcome, in_outcomes[1]))),
           array_agg(m.result), array_agg(m.error), array_agg(m.delay_ms), array_agg(m.writer)
      INTO ids, tokens, lease_ids, workers, outcomes, verbs, results, errors, delays, writers
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_outcomes, in_results, in_errors, in_delays_ms, in_writers)
           AS m(id, token, lease_id, worker, outcome, result, error, delay_ms, writer)
     WHERE m.id <> ALL (done);
    verdicts := ARRAY(SELECT w FROM faultline.judge_writes(
                          in_bucket, ids, tokens, lease_ids, workers, verbs, outcomes, results, errors) AS w);
    RETURN QUERY
    SELECT v.id, v.status, v.reason, v.current_token, v.current_worker, v.current_state, NULL::text
      FROM unnest(verdicts) AS v WHERE v.status <> 'good';
    done := ARRAY(SELECT v.id FROM unnest(verdicts) AS v WHERE v.status = 'good');
    IF done <> '{}' THEN
        -- Renewed at the last moment by a heartbeat that held the row when we came. Now we hold it.
        SELECT array_agg(m.id), array_agg(m.token), array_agg(m.lease_id), array_agg(m.worker), array_agg(m.outcome),
               array_agg(m.result), array_agg(m.error), array_agg(m.delay_ms), array_agg(m.writer)
          INTO ids, tokens, lease_ids, workers, outcomes, results, errors, delays, writers
          FROM unnest(ids, tokens, lease_ids, workers, outcomes, results, errors, delays, writers)
               AS m(id, token, lease_id, worker, outcome, result, error, delay_ms, writer)
         WHERE m.id = ANY (done);
        RETURN QUERY
        SELECT s.* FROM faultline.settle_jobs(
            in_bucket, ids, tokens, lease_ids, workers, outcomes, results, errors, delays, writers) AS s;
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.settle_jobs TO faultline_owner, faultline_worker;
