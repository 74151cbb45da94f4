-- Adds one job and returns its id, inside whatever transaction the caller is in: the job is there if and only if that
-- transaction commits. With an idempotency key, the same key with the same kind and payload returns the job that is
-- there; with another kind or payload it is an error (FL409).
CREATE OR REPLACE FUNCTION faultline.enqueue(
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
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    meta     faultline.meta;
    place    smallint;
    id       uuid;
    encoding faultline.encoding := CASE WHEN payload_bytes IS NULL THEN 'json' ELSE 'bytes' END;
    bytes    bytea := coalesce(payload_bytes, convert_to(payload::text, 'UTF8'));
    print    bytea;
    owner    record;
    problem  text;
BEGIN
    SELECT m.* INTO meta FROM faultline.meta m WHERE m.bucket = 0;
    problem := faultline.submission_problem(
        kind, payload, payload_bytes, meta.payload_bytes_max, priority, run_at, delay, attempts_max, lease_ttl, run_max,
        backoff_base, backoff_max, delivery, tags, traceparent, idempotency_key);
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL400';
    END IF;
    place := floor(random() * meta.buckets)::smallint;
    IF idempotency_key IS NOT NULL THEN
        place := coalesce(faultline.bucket_of_key(queue, idempotency_key, meta.buckets), 0);
        print := faultline.fingerprint(kind, encoding, bytes);
    END IF;
    id := faultline.new_id(place);
    SELECT e.job_id, e.fingerprint INTO owner
      FROM faultline.enqueue_jobs(
          place, queue, ARRAY[id], ARRAY[kind], ARRAY[bytes], ARRAY[encoding], ARRAY[priority::smallint],
          ARRAY[run_at], ARRAY[faultline.to_ms(delay)], ARRAY[attempts_max], ARRAY[faultline.to_ms(lease_ttl)::integer],
          ARRAY[faultline.to_ms(run_max)], ARRAY[faultline.to_ms(backoff_base)::integer],
          ARRAY[faultline.to_ms(backoff_max)::integer], ARRAY[delivery::faultline.delivery],
          ARRAY[to_jsonb(tags)::text], ARRAY[traceparent],
          CASE WHEN idempotency_key IS NOT NULL THEN ARRAY[idempotency_key] END, ARRAY[print]) AS e;
    IF owner.fingerprint <> print THEN
        RAISE EXCEPTION 'idempotency key % belongs to job %, which has another kind or payload',
            quote_literal(idempotency_key), owner.job_id
            USING ERRCODE = 'FL409', HINT = 'A key names one piece of work: use another one for this.';
    ELSIF owner.job_id <> id THEN
        RETURN owner.job_id;
    ELSIF coalesce(run_at, faultline.clock() + delay, '-infinity') <= faultline.clock() THEN
        PERFORM faultline.announce(queue);
    END IF;
    RETURN id;
END
$$;
COMMENT ON FUNCTION faultline.enqueue IS 'Adds a job in the caller''s transaction and returns its id.';
GRANT EXECUTE ON FUNCTION faultline.enqueue TO faultline_owner, faultline_producer, faultline_worker;
