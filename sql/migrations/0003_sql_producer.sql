-- Producers that speak only SQL: SELECT faultline.enqueue('emails', 'welcome', '{"user": 7}') from any
-- language, inside any transaction: the job is there if and only if that transaction commits.

-- A version 7 UUID: 48 bits of milliseconds, then random bits, and the bucket in the last two bytes, so
-- that an id alone says where its row is.
CREATE FUNCTION faultline.new_id(in_bucket smallint) RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$
    SELECT encode(
        set_byte(set_byte(
            overlay(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6)
                PLACING int2send(in_bucket) FROM 15 FOR 2),
            6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112),
            8, (get_byte(uuid_send(gen_random_uuid()), 8) & 63) | 128), 'hex')::uuid
    $$;

-- The bucket of a keyed job comes from its key, so that one key has one place.
CREATE FUNCTION faultline.bucket_of_key(in_queue text, in_key text, buckets smallint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT (('x' || encode(substring(sha256(convert_to(in_queue || chr(1) || in_key, 'UTF8')) FROM 1 FOR 4), 'hex'))
            ::bit(32)::bigint % buckets)::smallint
    $$;

-- Wakes idle workers, by a NOTIFY with the queue's name: a hint, because workers poll in any case. NOTIFY takes a lock
-- that all transactions which use it hold until they have committed, so a session does not announce the same queue
-- twice in two milliseconds; a setting of the session remembers the last announcement, and a rollback
-- undoes both. Workers that were woken look again for a while, and find what came in the meantime.
CREATE FUNCTION faultline.announce(queue text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    window_now text := queue || ' ' || floor(extract(epoch FROM clock_timestamp()) * 500)::bigint;
BEGIN
    IF current_setting('faultline.announced', true) IS DISTINCT FROM window_now THEN
        PERFORM set_config('faultline.announced', window_now, false);
        PERFORM pg_notify('faultline_jobs', queue);
    END IF;
END
$$;

-- Adds one job and returns its id. Its payload is JSON, or bytes in payload_bytes. With an idempotency key, the same key with the same kind and payload
-- returns the job that is there; another payload is an error (FL409).
CREATE FUNCTION faultline.enqueue(
    queue           text,
    kind            text,
    payload         jsonb       DEFAULT NULL,
    priority        integer     DEFAULT 5,
    run_at          timestamptz DEFAULT NULL,
    delay           interval    DEFAULT NULL,
    idempotency_key text        DEFAULT NULL,
    attempts_max    integer     DEFAULT NULL,
    lease_ttl       interval    DEFAULT NULL,
    run_max         interval    DEFAULT NULL,
    backoff_base    interval    DEFAULT NULL,
    backoff_max     interval    DEFAULT NULL,
    delivery        text        DEFAULT 'at_least_once',
    tags            text[]      DEFAULT NULL,
    traceparent     text        DEFAULT NULL,
    payload_bytes   bytea       DEFAULT NULL
) RETURNS uuid
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    meta       faultline.meta;
    bytes      bytea := coalesce(payload_bytes, convert_to(payload::text, 'UTF8'));
    print      bytea;
    target     smallint;
    new_job    uuid;
    owner_job  uuid;
    owner_print bytea;
    ttl_ms     bigint := extract(epoch FROM lease_ttl) * 1000;
    max_ms     bigint := extract(epoch FROM run_max) * 1000;
    base_ms    bigint := extract(epoch FROM backoff_base) * 1000;
    backoff_ms bigint := extract(epoch FROM backoff_max) * 1000;
BEGIN
    SELECT m.* INTO meta FROM faultline.meta m WHERE m.bucket = 0;
    IF queue IS NULL OR NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = 0 AND q.name = enqueue.queue) THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: faultline queues set NAME';
    ELSIF kind IS NULL OR octet_length(kind) NOT BETWEEN 1 AND 128 OR kind ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'a kind has 1 to 128 bytes and no control characters' USING ERRCODE = 'FL400';
    ELSIF bytes IS NULL THEN
        RAISE EXCEPTION 'a payload is needed' USING ERRCODE = 'FL400', HINT = 'Give ''null'' or ''{}'' for none.';
    ELSIF payload IS NOT NULL AND payload_bytes IS NOT NULL THEN
        RAISE EXCEPTION 'give payload or payload_bytes, not both' USING ERRCODE = 'FL400';
    ELSIF octet_length(bytes) > meta.payload_bytes_max THEN
        RAISE EXCEPTION 'the payload has % bytes, the limit is %', octet_length(bytes), meta.payload_bytes_max
            USING ERRCODE = 'FL400', HINT = 'Store the data elsewhere and enqueue a reference to it.';
    ELSIF priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'a priority is 0 (first) to 9 (last)' USING ERRCODE = 'FL400';
    ELSIF run_at IS NOT NULL AND delay IS NOT NULL THEN
        RAISE EXCEPTION 'give run_at or delay, not both' USING ERRCODE = 'FL400';
    ELSIF run_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 23:59:59+00' THEN
        RAISE EXCEPTION 'run_at is a moment between the years 1970 and 9999' USING ERRCODE = 'FL400';
    ELSIF delay NOT BETWEEN interval '0' AND interval '3650 days' THEN
        RAISE EXCEPTION 'a delay is 0 to 3650 days' USING ERRCODE = 'FL400';
    ELSIF attempts_max NOT BETWEEN 1 AND 1000000 THEN
        RAISE EXCEPTION 'attempts_max is 1 to 1000000' USING ERRCODE = 'FL400';
    ELSIF ttl_ms NOT BETWEEN 100 AND 86400000 THEN
        RAISE EXCEPTION 'lease_ttl is 100 ms to 24 h' USING ERRCODE = 'FL400';
    ELSIF max_ms NOT BETWEEN 100 AND 31536000000 THEN
        RAISE EXCEPTION 'run_max is 100 ms to 365 days' USING ERRCODE = 'FL400';
    ELSIF base_ms NOT BETWEEN 0 AND 86400000 THEN
        RAISE EXCEPTION 'backoff_base is 0 to 24 h' USING ERRCODE = 'FL400';
    ELSIF backoff_ms NOT BETWEEN 0 AND 604800000 THEN
        RAISE EXCEPTION 'backoff_max is 0 to 7 days' USING ERRCODE = 'FL400';
    ELSIF delivery IS NULL OR delivery NOT IN ('at_least_once', 'at_most_once', 'hold') THEN
        RAISE EXCEPTION 'delivery is at_least_once, at_most_once or hold' USING ERRCODE = 'FL400';
    ELSIF octet_length(idempotency_key) NOT BETWEEN 1 AND 256 OR idempotency_key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'an idempotency key has 1 to 256 bytes and no control characters' USING ERRCODE = 'FL400';
    ELSIF array_ndims(tags) > 1 OR cardinality(tags) > 32
          OR EXISTS (SELECT FROM unnest(tags) AS t(tag)
                      WHERE t.tag IS NULL OR octet_length(t.tag) NOT BETWEEN 1 AND 128 OR t.tag ~ '[[:cntrl:]]') THEN
        RAISE EXCEPTION 'there are at most 32 tags, each of 1 to 128 bytes and without control characters'
            USING ERRCODE = 'FL400';
    ELSIF traceparent !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' OR traceparent ~ '^...0{32}|-0{16}-' THEN
        RAISE EXCEPTION 'a traceparent is 00-TRACE_ID-PARENT_ID-FLAGS, as W3C Trace Context has it'
            USING ERRCODE = 'FL400';
    END IF;

    target := CASE WHEN idempotency_key IS NULL THEN floor(random() * meta.buckets)::smallint
                   ELSE faultline.bucket_of_key(queue, idempotency_key, meta.buckets) END;
    new_job := faultline.new_id(target);

    IF idempotency_key IS NOT NULL THEN
        print := sha256(convert_to(kind, 'UTF8') || '\x00'::bytea
                        || CASE WHEN payload_bytes IS NULL THEN '\x6a'::bytea ELSE '\x62'::bytea END || bytes);
        INSERT INTO faultline.idempotency_keys AS k (bucket, queue, key, job_id, fingerprint)
        VALUES (target, enqueue.queue, enqueue.idempotency_key, new_job, print)
        ON CONFLICT (bucket, queue, key) DO UPDATE
           SET job_id = EXCLUDED.job_id, fingerprint = EXCLUDED.fingerprint, created_at = faultline.clock(),
               expires_at = NULL
         WHERE k.expires_at <= faultline.clock();
        SELECT k.job_id, k.fingerprint INTO owner_job, owner_print
          FROM faultline.idempotency_keys k
         WHERE k.bucket = target AND k.queue = enqueue.queue AND k.key = enqueue.idempotency_key;
        IF owner_print <> print THEN
            RAISE EXCEPTION 'idempotency key % belongs to job %, which has another kind or payload',
                quote_literal(idempotency_key), owner_job USING ERRCODE = 'FL409';
        ELSIF owner_job <> new_job THEN
            RETURN owner_job;
        END IF;
    END IF;

    INSERT INTO faultline.jobs AS j (
           bucket, id, queue, kind, payload, encoding, priority, run_at, attempts_max, lease_ttl_ms, run_max_ms,
           backoff_base_ms, backoff_max_ms, delivery, tags, idempotency_key, traceparent)
    VALUES (target, new_job, enqueue.queue, enqueue.kind, bytes,
            CASE WHEN enqueue.payload_bytes IS NULL THEN 'json'::faultline.encoding ELSE 'bytes' END, enqueue.priority,
            coalesce(enqueue.run_at, faultline.clock() + coalesce(enqueue.delay, interval '0')),
            enqueue.attempts_max, ttl_ms, max_ms, base_ms, backoff_ms, enqueue.delivery::faultline.delivery,
            enqueue.tags, enqueue.idempotency_key, enqueue.traceparent);
    INSERT INTO faultline.tallies (bucket, queue, available) VALUES (target, enqueue.queue, 1);
    IF coalesce(enqueue.run_at, faultline.clock() + enqueue.delay, faultline.clock()) <= faultline.clock() THEN
        PERFORM faultline.announce(enqueue.queue);
    END IF;
    RETURN new_job;
END
$$;

REVOKE ALL ON FUNCTION faultline.announce(text), faultline.new_id(smallint),
    faultline.bucket_of_key(text, text, smallint),
    faultline.enqueue(text, text, jsonb, integer, timestamptz, interval, text, integer, interval, interval,
                      interval, interval, text, text[], text, bytea) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION faultline.announce(text), faultline.new_id(smallint),
    faultline.bucket_of_key(text, text, smallint),
    faultline.enqueue(text, text, jsonb, integer, timestamptz, interval, text, integer, interval, interval,
                      interval, interval, text, text[], text, bytea)
   TO faultline_owner, faultline_producer, faultline_worker;
