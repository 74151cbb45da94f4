-- Adds up to 1000 jobs, all or none, and returns their ids in the order of the array. Each is an object whose fields are
-- the parameters of faultline.enqueue: [{"queue": "emails", "kind": "welcome", "payload": {"user": 7}}, …].
CREATE OR REPLACE FUNCTION faultline.enqueue_many(jobs jsonb) RETURNS SETOF uuid
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    meta    faultline.meta;
    problem text;
    part    record;
    owner   record;
    at      integer;
    ids     uuid[];
    -- Ids of one call ascend, so that its jobs stand in the queue in their order: the same milliseconds, then a number.
    prefix  bytea := substring(uuid_send(faultline.new_id(0::smallint)) FROM 1 FOR 6);
BEGIN
    IF jobs IS NULL OR jsonb_typeof(jobs) <> 'array' OR jsonb_array_length(jobs) > 1000 THEN
        RAISE EXCEPTION 'jobs is a JSON array of at most 1000 objects' USING ERRCODE = 'FL400';
    END IF;
    SELECT format('job %s of the array: %s', e.n, coalesce('there is no field ' || quote_literal(f.name), 'it is no object'))
      INTO problem
      FROM jsonb_array_elements(jobs) WITH ORDINALITY AS e(job, n)
      LEFT JOIN LATERAL jsonb_object_keys(CASE jsonb_typeof(e.job) WHEN 'object' THEN e.job ELSE '{}' END) AS f(name) ON true
     WHERE jsonb_typeof(e.job) <> 'object'
        OR f.name NOT IN ('queue', 'kind', 'payload', 'priority', 'run_at', 'delay', 'idempotency_key', 'attempts_max',
                          'lease_ttl', 'run_max', 'backoff_base', 'backoff_max', 'delivery', 'tags', 'traceparent',
                          'payload_bytes')
     LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL400', HINT = 'The fields are the parameters of faultline.enqueue.';
    END IF;
    SELECT m.* INTO meta FROM faultline.meta m WHERE m.bucket = 0;

    FOR part IN
        WITH given AS (
            SELECT r.n, r.job -> 'payload' AS payload, r.payload_bytes, r.queue, r.kind, coalesce(r.priority, 5) AS priority,
                   r.run_at, r.delay, r.idempotency_key AS key, r.attempts_max, r.lease_ttl, r.run_max, r.backoff_base,
                   r.backoff_max, coalesce(r.delivery, 'at_least_once') AS delivery, r.tags, r.traceparent,
                   coalesce(r.payload_bytes, convert_to((r.job -> 'payload')::text, 'UTF8')) AS bytes,
                   CASE WHEN r.payload_bytes IS NULL THEN 'json'::faultline.encoding ELSE 'bytes' END AS encoding,
                   CASE WHEN r.idempotency_key IS NULL OR r.queue IS NULL THEN floor(random() * meta.buckets)::smallint
                        ELSE faultline.bucket_of_key(r.queue, r.idempotency_key, meta.buckets) END AS bucket
              FROM ROWS FROM (
                   jsonb_to_recordset(jobs) AS (
                       queue text, kind text, priority integer, run_at timestamptz, delay interval, idempotency_key text,
                       attempts_max integer, lease_ttl interval, run_max interval, backoff_base interval,
                       backoff_max interval, delivery text, tags text[], traceparent text, payload_bytes bytea),
                   jsonb_array_elements(jobs)) WITH ORDINALITY
                   AS r(queue, kind, priority, run_at, delay, idempotency_key, attempts_max, lease_ttl, run_max,
                        backoff_base, backoff_max, delivery, tags, traceparent, payload_bytes, job, n)),
        judged AS (
            SELECT g.*, faultline.submission_problem(
                       g.kind, g.payload, g.payload_bytes, meta.payload_bytes_max, g.priority, g.run_at, g.delay,
                       g.attempts_max, g.lease_ttl, g.run_max, g.backoff_base, g.backoff_max, g.delivery, g.tags,
                       g.traceparent, g.key) AS problem
              FROM given g)
        SELECT j.bucket, j.queue, min(format('job %s of the array: %s', j.n, j.problem)) FILTER (WHERE j.problem IS NOT NULL) AS problem,
               array_agg(j.n) AS numbers,
               array_agg(encode(overlay(uuid_send(faultline.new_id(j.bucket))
                                        PLACING prefix || int2send((28672 + j.n)::smallint) FROM 1 FOR 8), 'hex')::uuid) AS ids,
               array_agg(j.kind) AS kinds, array_agg(j.bytes) AS payloads,
               array_agg(j.encoding) AS encodings, array_agg(j.priority) AS priorities, array_agg(j.run_at) AS run_ats,
               array_agg(faultline.to_ms(j.delay)) AS delays, array_agg(j.attempts_max) AS attempts_max,
               array_agg(faultline.to_ms(j.lease_ttl)) AS ttls, array_agg(faultline.to_ms(j.run_max)) AS run_max,
               array_agg(faultline.to_ms(j.backoff_base)) AS bases, array_agg(faultline.to_ms(j.backoff_max)) AS mosts,
               array_agg(j.delivery) AS deliveries, array_agg(to_jsonb(j.tags)::text) AS tags,
               array_agg(j.traceparent) AS traceparents, CASE WHEN count(j.key) > 0 THEN array_agg(j.key) END AS keys,
               array_agg(faultline.fingerprint(j.kind, j.encoding, j.bytes)) AS prints
          -- The jobs of each queue in the order of the array: ids ascend.
          FROM (SELECT d.* FROM judged d ORDER BY d.bucket, d.queue, d.n) AS j GROUP BY j.bucket, j.queue ORDER BY j.bucket, j.queue COLLATE "C"
    LOOP
        IF part.problem IS NOT NULL THEN
            RAISE EXCEPTION '%', part.problem USING ERRCODE = 'FL400';
        END IF;
        FOR at IN 1 .. cardinality(part.ids) LOOP
            ids[part.numbers[at]] := part.ids[at];
        END LOOP;
        FOR owner IN
            SELECT e.id, e.job_id, e.fingerprint FROM faultline.enqueue_jobs(
                part.bucket, part.queue, part.ids, part.kinds, part.payloads, part.encodings,
                part.priorities::smallint[], part.run_ats, part.delays, part.attempts_max, part.ttls::integer[],
                part.run_max, part.bases::integer[], part.mosts::integer[], part.deliveries::faultline.delivery[],
                part.tags, part.traceparents, part.keys, part.prints) AS e
        LOOP
            at := array_position(part.ids, owner.id);
            IF owner.fingerprint <> part.prints[at] THEN
                RAISE EXCEPTION 'job % of the array: idempotency key % belongs to job %, which has another kind or payload',
                    part.numbers[at], quote_literal(part.keys[at]), owner.job_id
                    USING ERRCODE = 'FL409', HINT = 'A key names one piece of work: use another one for this.';
            END IF;
            ids[part.numbers[at]] := owner.job_id;
        END LOOP;
        PERFORM FROM unnest(part.run_ats, part.delays) AS d(run_at, delay_ms)
          WHERE coalesce(d.run_at, '-infinity') <= faultline.clock() AND coalesce(d.delay_ms, 0) = 0;
        IF FOUND THEN
            PERFORM faultline.announce(part.queue);
        END IF;
    END LOOP;
    RETURN QUERY SELECT i.id FROM unnest(ids) WITH ORDINALITY AS i(id, n) ORDER BY i.n;
EXCEPTION WHEN data_exception THEN
    RAISE EXCEPTION 'a field of a job cannot be read: %', SQLERRM
        USING ERRCODE = 'FL400', HINT = 'The fields have the types of the parameters of faultline.enqueue.';
END
$$;
COMMENT ON FUNCTION faultline.enqueue_many IS
    'Adds up to 1000 jobs, all or none, and returns their ids in the order of the array.';
GRANT EXECUTE ON FUNCTION faultline.enqueue_many TO faultline_owner, faultline_producer, faultline_worker;
