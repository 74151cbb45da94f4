-- Adds jobs to a queue, all or none. Ids are the producer's, so that the same submission sent twice is one job.
--
-- A job that is there already is not added again; one that another sending of the same submission is adding at this very
-- moment is waited for, and then refused (unique_violation, nothing is added: the sender tries again). INSERT … ON CONFLICT
-- would do both by itself, with a lock and a log record more for every row.
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
-- in_ids ascend, and mostly nobody else's lie between them. So whether one of them is in `jobs`, or in the ledger, is first
-- asked by one look at all that lies between the first and the last.
--
-- Most calls bring few jobs without options, and then to begin a statement costs as much as to add a job: there are as few
-- statements here as can be, and options are checked only where there are some.
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
    last_id   uuid := in_ids[cardinality(in_ids)];
    is_queue  boolean;
    is_near   boolean;
    known     uuid[];
    mine      uuid[];
    added     bigint;
    later     bigint := 0;
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
    IF cardinality(in_ids) > 1000 OR num_nulls(in_ids, in_kinds, in_payloads, in_priorities) > 0 OR shape <> ANY (ARRAY[
           array_dims(in_ids), array_dims(in_kinds), array_dims(in_payloads), array_dims(in_priorities),
           array_dims(in_encodings), array_dims(in_run_ats), array_dims(in_delays_ms), array_dims(in_attempts_max),
           array_dims(in_lease_ttls_ms), array_dims(in_run_max_ms), array_dims(in_backoff_base_ms),
           array_dims(in_backoff_max_ms), array_dims(in_deliveries), array_dims(in_tags), array_dims(in_traceparents),
           array_dims(in_keys), array_dims(in_fingerprints)]) THEN
        RAISE EXCEPTION 'the arrays of a submission have one element per job, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    SELECT EXISTS (SELECT FROM faultline.queues q
                    WHERE q.bucket = in_bucket AND q.name = in_queue AND q.deleted_at IS NULL),
           EXISTS (SELECT FROM faultline.jobs t WHERE t.bucket = in_bucket AND t.id BETWEEN in_ids[1] AND last_id)
      INTO is_queue, is_near;
    IF NOT is_queue THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(in_queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: faultline queues set NAME --create';
    END IF;
    -- Expressions, not a statement: for one job they take a tenth of its time, for many no more than it.
    FOR i IN 1 .. cardinality(in_ids) LOOP
        problem := coalesce(
            faultline.id_problem(in_ids[i], in_bucket),
            CASE WHEN in_ids[i] <= in_ids[i - 1] THEN 'the ids of a submission ascend' END,
            CASE WHEN in_kinds[i] = in_kinds[i - 1] THEN NULL ELSE faultline.kind_problem(in_kinds[i]) END,
            faultline.job_problem(in_payloads[i], bytes_max, in_priorities[i]));
        EXIT WHEN problem IS NOT NULL;
    END LOOP;
    IF problem IS NULL AND num_nonnulls(in_run_ats, in_delays_ms, in_attempts_max, in_lease_ttls_ms, in_run_max_ms,
           in_backoff_base_ms, in_backoff_max_ms, in_tags, in_traceparents, in_keys) > 0 THEN
        SELECT p.problem INTO problem
          FROM (SELECT coalesce(faultline.options_problem(
                           in_run_ats[n.i], in_delays_ms[n.i], in_attempts_max[n.i], in_lease_ttls_ms[n.i],
                           in_run_max_ms[n.i], in_backoff_base_ms[n.i], in_backoff_max_ms[n.i],
                           faultline.tags_of(in_tags[n.i]), in_traceparents[n.i], in_keys[n.i]),
                           CASE WHEN in_keys[n.i] IS NOT NULL AND in_fingerprints[n.i] IS NULL THEN
                                'an idempotency key comes with a fingerprint' END) AS problem
                  FROM unnest(in_ids) WITH ORDINALITY AS n(id, i)) AS p
         WHERE p.problem IS NOT NULL
         LIMIT 1;
    END IF;
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

    IF is_near THEN
        known := ARRAY(SELECT t.id FROM faultline.jobs t WHERE t.bucket = in_bucket AND t.id = ANY (in_ids));
    END IF;
    IF cardinality(known) > 0 THEN
        mine := ARRAY(SELECT n.id FROM unnest(coalesce(mine, in_ids)) AS n(id) WHERE n.id <> ALL (known));
    END IF;
    INSERT INTO faultline.jobs (
           bucket, id, queue, kind, payload, encoding, priority, run_at, created_at, attempts_max, lease_ttl_ms,
           run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, idempotency_key, delayed)
    SELECT in_bucket, n.id, in_queue, in_kinds[n.i], in_payloads[n.i], coalesce(in_encodings[n.i], 'json'),
           in_priorities[n.i], coalesce(in_run_ats[n.i], time_now + coalesce(in_delays_ms[n.i], 0) * interval '1 millisecond'),
           time_now, in_attempts_max[n.i], in_lease_ttls_ms[n.i], in_run_max_ms[n.i], in_backoff_base_ms[n.i],
           in_backoff_max_ms[n.i], coalesce(in_deliveries[n.i], 'at_least_once'), faultline.tags_of(in_tags[n.i]),
           in_traceparents[n.i], in_keys[n.i], coalesce(in_run_ats[n.i] > time_now, in_delays_ms[n.i] > 0, false)
      FROM unnest(in_ids) WITH ORDINALITY AS n(id, i)
     WHERE mine IS NULL OR n.id = ANY (mine);
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added = 0 THEN
        RETURN;
    END IF;
    IF num_nonnulls(in_run_ats, in_delays_ms) > 0 THEN
        SELECT count(*) INTO later FROM unnest(in_ids, in_run_ats, in_delays_ms) AS n(id, run_at, delay_ms)
         WHERE (mine IS NULL OR n.id = ANY (mine)) AND coalesce(n.run_at > time_now, n.delay_ms > 0, false);
    END IF;
    INSERT INTO faultline.tallies (bucket, queue, available, delayed)
    SELECT in_bucket, in_queue, added, later
     WHERE NOT EXISTS (
           SELECT FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id BETWEEN in_ids[1] AND last_id);
    IF FOUND THEN
        RETURN;
    END IF;

    -- Somebody else's jobs, or these.
    ended := ARRAY(
        SELECT n.id FROM unnest(in_ids) AS n(id)
         CROSS JOIN LATERAL (
               SELECT FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = n.id LIMIT 1) AS l);
    -- A job that lives after an attempt on record has that attempt's token, at least.
    WITH taken AS (
        DELETE FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (ended) AND j.token = 0
        RETURNING j.delayed)
    SELECT count(*), count(*) FILTER (WHERE t.delayed) INTO removed, not_later FROM taken t;
    IF added > removed THEN
        INSERT INTO faultline.tallies (bucket, queue, available, delayed)
        VALUES (in_bucket, in_queue, added - removed, later - not_later);
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.enqueue_jobs TO faultline_owner, faultline_producer, faultline_worker;
