-- Adds jobs to a queue, all or none. Ids are the producer's, so that the same submission sent twice is one job.
--
-- A submission that comes again after its job has finished (its answer was lost; the network delivered it late) must
-- not bring the job back to life. So the ledger is asked after the rows are in: a job that finishes at this very
-- moment is either still in `jobs`, and then nothing is added, or in the ledger already, and then what was added is
-- taken out again. Asked before, both could be missed.
--
-- An idempotency key belongs to a job while it lives and for the queue's key_retention after its end. Answers, for the
-- jobs with keys only: the job that the key belongs to, and with which fingerprint (SHA-256 over kind, encoding and
-- payload) that one was submitted. Two producers with the same new key meet at its row: the second waits for the first,
-- for a second at most, and is told then that the key is busy (FL423). Nobody else ever waits for a key.
--
-- in_tags holds JSON arrays, because an array of arrays would have to be a rectangle. Arrays of options that no job uses
-- may be NULL; all others have one element per job, of which there are 1000 at most.
--
-- One job without a key is what most calls bring. It is added by the same rules, each told by an expression or a look-up
-- where many jobs need a query over their arrays: to begin such a query costs as much as to add the job.
CREATE OR REPLACE FUNCTION faultline.enqueue_jobs(
    in_bucket smallint, in_queue text, in_ids uuid[], in_kinds text[], in_payloads bytea[],
    in_encodings faultline.encoding[], in_priorities smallint[], in_run_ats timestamptz[], in_delays_ms bigint[],
    in_attempts_max integer[], in_lease_ttls_ms integer[], in_run_max_ms bigint[], in_backoff_base_ms integer[],
    in_backoff_max_ms integer[], in_deliveries faultline.delivery[], in_tags text[], in_traceparents text[],
    in_keys text[], in_fingerprints bytea[])
RETURNS TABLE (id uuid, job_id uuid, fingerprint bytea)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now  timestamptz;
    -- What programs let through is a setting of theirs; this is what no claim could bring to a worker any more.
    bytes_max integer := 268435456;
    problem   text;
    shape     text := '[1:' || cardinality(in_ids) || ']';
    mine      uuid[];
    added     bigint := 0;
    later     bigint := 0;
    one_later boolean;
    ended     uuid[];
    removed   bigint;
    not_later bigint;
    owners    uuid[];
    expired   integer[];
    i         integer;
BEGIN
    IF cardinality(in_ids) = 0 THEN
        RETURN;
    END IF;
    -- Their shape, too: what is checked as element 1 is to be what is added as the first.
    IF in_ids IS NULL OR cardinality(in_ids) > 1000 OR array_dims(in_ids) <> shape
       OR array_dims(in_kinds) IS DISTINCT FROM shape OR array_dims(in_payloads) IS DISTINCT FROM shape
       OR array_dims(in_priorities) IS DISTINCT FROM shape OR array_dims(in_encodings) <> shape
       OR array_dims(in_run_ats) <> shape OR array_dims(in_delays_ms) <> shape
       OR array_dims(in_attempts_max) <> shape OR array_dims(in_lease_ttls_ms) <> shape
       OR array_dims(in_run_max_ms) <> shape OR array_dims(in_backoff_base_ms) <> shape
       OR array_dims(in_backoff_max_ms) <> shape OR array_dims(in_deliveries) <> shape OR array_dims(in_tags) <> shape
       OR array_dims(in_traceparents) <> shape OR array_dims(in_keys) <> shape
       OR array_dims(in_fingerprints) <> shape THEN
        RAISE EXCEPTION 'the arrays of a submission have one element per job, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_queue;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(in_queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: faultline queues set NAME';
    END IF;

    IF cardinality(in_ids) = 1 AND in_keys IS NULL THEN
        problem := faultline.id_problem(in_ids[1], in_bucket);
        IF problem IS NULL THEN
            problem := faultline.job_problem(
                in_kinds[1], in_payloads[1], bytes_max, in_priorities[1], in_run_ats[1], in_delays_ms[1],
                in_attempts_max[1], in_lease_ttls_ms[1], in_run_max_ms[1], in_backoff_base_ms[1], in_backoff_max_ms[1],
                faultline.tags_of(in_tags[1]), in_traceparents[1], NULL);
        END IF;
        IF problem IS NOT NULL THEN
            RAISE EXCEPTION '%', problem USING ERRCODE = 'FL400';
        END IF;
        time_now := faultline.clock_now();
        INSERT INTO faultline.jobs (
               bucket, id, queue, kind, payload, encoding, priority, run_at, created_at, attempts_max, lease_ttl_ms,
               run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, delayed)
        VALUES (in_bucket, in_ids[1], in_queue, in_kinds[1], in_payloads[1], coalesce(in_encodings[1], 'json'),
                in_priorities[1],
                coalesce(in_run_ats[1], time_now + coalesce(in_delays_ms[1], 0) * interval '1 millisecond'), time_now,
                in_attempts_max[1], in_lease_ttls_ms[1], in_run_max_ms[1], in_backoff_base_ms[1], in_backoff_max_ms[1],
                coalesce(in_deliveries[1], 'at_least_once'), faultline.tags_of(in_tags[1]), in_traceparents[1],
                coalesce(in_run_ats[1] > time_now, in_delays_ms[1] > 0, false))
        ON CONFLICT (bucket, id) DO NOTHING;
        IF NOT FOUND THEN
            RETURN;
        END IF;
        PERFORM FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = in_ids[1] LIMIT 1;
        IF FOUND THEN
            DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = in_ids[1];
        ELSE
            INSERT INTO faultline.tallies (bucket, queue, available, delayed)
            VALUES (in_bucket, in_queue, 1, coalesce(in_run_ats[1] > time_now, in_delays_ms[1] > 0, false)::integer);
        END IF;
        RETURN;
    END IF;

    SELECT p.problem INTO problem
      FROM (SELECT coalesce(faultline.id_problem(n.id, in_bucket), faultline.job_problem(
                       n.kind, n.payload, bytes_max, n.priority, n.run_at, n.delay_ms, n.attempts_max, n.lease_ttl_ms,
                       n.run_max_ms, n.backoff_base_ms, n.backoff_max_ms, faultline.tags_of(n.tags), n.traceparent,
                       n.key), CASE WHEN n.key IS NOT NULL AND n.fingerprint IS NULL THEN
                                    'an idempotency key comes with a fingerprint' END) AS problem
              FROM unnest(in_ids, in_kinds, in_payloads, in_priorities, in_run_ats, in_delays_ms, in_attempts_max,
                          in_lease_ttls_ms, in_run_max_ms, in_backoff_base_ms, in_backoff_max_ms, in_tags,
                          in_traceparents, in_keys, in_fingerprints)
                   AS n(id, kind, payload, priority, run_at, delay_ms, attempts_max, lease_ttl_ms, run_max_ms,
                        backoff_base_ms, backoff_max_ms, tags, traceparent, key, fingerprint)) AS p
     WHERE p.problem IS NOT NULL
     LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL400';
    END IF;

    time_now := faultline.clock_now();
    IF in_keys IS NOT NULL THEN
        BEGIN
            INSERT INTO faultline.idempotency_keys AS k (bucket, queue, key, job_id, fingerprint, created_at)
            SELECT in_bucket, in_queue, n.key, n.id, n.fingerprint, time_now
              FROM unnest(in_ids, in_keys, in_fingerprints) AS n(id, key, fingerprint)
             WHERE n.key IS NOT NULL
             ORDER BY n.key COLLATE "C"
            ON CONFLICT (bucket, queue, key) DO NOTHING;
            time_now := faultline.clock_now();
            -- A key whose job has been over for long enough is free. A job that is not on record at all was retired, and
            -- then the key says itself until when it is good.
            SELECT array_agg(n.nr::integer ORDER BY n.key COLLATE "C"), array_agg(k.job_id) INTO expired, owners
              FROM unnest(in_ids, in_keys) WITH ORDINALITY AS n(id, key, nr)
             CROSS JOIN LATERAL (
                   SELECT i.job_id, i.expires_at FROM faultline.idempotency_keys i
                    WHERE i.bucket = in_bucket AND i.queue = in_queue AND i.key = n.key LIMIT 1) AS k
              LEFT JOIN LATERAL (
                   SELECT j.id FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = k.job_id LIMIT 1) AS live ON true
              LEFT JOIN LATERAL (
                   SELECT l.ended_at + s.key_retention_ms * interval '1 millisecond' AS free_at
                     FROM faultline.ledger l
                    CROSS JOIN LATERAL (
                          SELECT q.key_retention_ms FROM faultline.queues q
                           WHERE q.bucket = in_bucket AND q.name = in_queue LIMIT 1) AS s
                    WHERE l.bucket = in_bucket AND l.job_id = k.job_id
                    ORDER BY l.token DESC LIMIT 1) AS last ON true
             WHERE k.job_id <> n.id AND live.id IS NULL
               AND coalesce(last.free_at, k.expires_at, '-infinity') <= time_now;
            IF expired IS NOT NULL THEN
                -- Ours, unless another producer was quicker: then its job is the one that comes back. Key by key: in one
                -- statement, the planner would walk all keys of a table that looks empty to it.
                FOREACH i IN ARRAY expired LOOP
                    UPDATE faultline.idempotency_keys k
                       SET job_id = in_ids[i], fingerprint = in_fingerprints[i], created_at = time_now, expires_at = NULL
                     WHERE k.bucket = in_bucket AND k.queue = in_queue AND k.key = in_keys[i]
                       AND k.job_id = ANY (owners);
                END LOOP;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            RAISE EXCEPTION 'an idempotency key is being submitted in a transaction that is still open: %',
                (SELECT string_agg(quote_literal(n.key), ', ') FROM unnest(in_keys) AS n(key) WHERE n.key IS NOT NULL)
                USING ERRCODE = 'FL423', HINT = 'Nothing was added. Try again when that transaction has ended.';
        END;
        RETURN QUERY
        SELECT n.id, k.job_id, k.fingerprint
          FROM unnest(in_ids, in_keys) AS n(id, key)
         CROSS JOIN LATERAL (
               SELECT i.job_id, i.fingerprint FROM faultline.idempotency_keys i
                WHERE i.bucket = in_bucket AND i.queue = in_queue AND i.key = n.key LIMIT 1) AS k
         WHERE n.key IS NOT NULL;
        -- A job is added if its key is its own.
        mine := ARRAY(
            SELECT n.id FROM unnest(in_ids, in_keys) AS n(id, key)
              LEFT JOIN LATERAL (
                   SELECT i.job_id FROM faultline.idempotency_keys i
                    WHERE i.bucket = in_bucket AND i.queue = in_queue AND i.key = n.key LIMIT 1) AS k ON true
             WHERE n.key IS NULL OR k.job_id = n.id);
    END IF;

    -- A loop, since only the rows that were added are counted, and how many of them are to wait.
    FOR one_later IN
        INSERT INTO faultline.jobs AS j (
               bucket, id, queue, kind, payload, encoding, priority, run_at, created_at, attempts_max, lease_ttl_ms,
               run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, idempotency_key, delayed)
        SELECT in_bucket, n.id, in_queue, n.kind, n.payload, coalesce(n.encoding, 'json'), n.priority,
               coalesce(n.run_at, time_now + coalesce(n.delay_ms, 0) * interval '1 millisecond'), time_now,
               n.attempts_max, n.lease_ttl_ms, n.run_max_ms, n.backoff_base_ms, n.backoff_max_ms,
               coalesce(n.delivery, 'at_least_once'), faultline.tags_of(n.tags), n.traceparent, n.key,
               coalesce(n.run_at > time_now, n.delay_ms > 0, false)
          FROM unnest(in_ids, in_kinds, in_payloads, in_encodings, in_priorities, in_run_ats, in_delays_ms,
                      in_attempts_max, in_lease_ttls_ms, in_run_max_ms, in_backoff_base_ms, in_backoff_max_ms,
                      in_deliveries, in_tags, in_traceparents, in_keys)
               AS n(id, kind, payload, encoding, priority, run_at, delay_ms, attempts_max, lease_ttl_ms, run_max_ms,
                    backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, key)
         WHERE in_keys IS NULL OR n.id = ANY (mine)
        ON CONFLICT (bucket, id) DO NOTHING
        RETURNING j.delayed
    LOOP
        added := added + 1;
        later := later + one_later::integer;
    END LOOP;
    IF added = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(n.id) INTO ended
      FROM unnest(in_ids) AS n(id)
     CROSS JOIN LATERAL (
           SELECT l.job_id FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = n.id LIMIT 1) AS l;
    IF ended IS NOT NULL THEN
        -- A job that lives after an attempt on record has that attempt's token, at least.
        WITH taken AS (
            DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (ended) AND j.token = 0
            RETURNING j.delayed)
        SELECT count(*), count(*) FILTER (WHERE t.delayed) INTO removed, not_later FROM taken t;
        added := added - removed;
        later := later - not_later;
    END IF;
    IF added > 0 THEN
        INSERT INTO faultline.tallies (bucket, queue, available, delayed) VALUES (in_bucket, in_queue, added, later);
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.enqueue_jobs TO faultline_owner, faultline_producer, faultline_worker;
