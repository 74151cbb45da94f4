-- Makes a queue in one bucket or changes its settings there; NULL leaves a setting as it is (or at its default), and a
-- running_max of -1 takes the cap away. Every bucket has a row of its own, so that a claim finds it where its jobs are.
-- Without in_make it only changes one that there is. One that was deleted is made anew.
CREATE OR REPLACE FUNCTION faultline.set_queue_in(
    in_bucket smallint, in_name text, in_paused boolean, in_running_max integer, in_lease_ttl_ms integer,
    in_attempts_max integer, in_backoff_base_ms integer, in_backoff_max_ms integer, in_retention_ms bigint,
    in_key_retention_ms bigint, in_dead_retention_ms bigint, in_make boolean)
RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
BEGIN
    IF in_name IS NULL OR octet_length(in_name) NOT BETWEEN 1 AND 128 OR in_name ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'the name of a queue has 1 to 128 bytes and no control characters' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM faultline.meta m WHERE m.bucket = in_bucket;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no bucket %', coalesce(in_bucket::text, 'NULL') USING ERRCODE = 'FL400';
    END IF;
    DELETE FROM faultline.queues q
     WHERE q.bucket = in_bucket AND q.name = in_name AND q.deleted_at IS NOT NULL AND in_make;
    IF in_make IS DISTINCT FROM true THEN
        PERFORM FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_name AND q.deleted_at IS NULL FOR UPDATE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'there is no queue %', quote_nullable(in_name)
                USING ERRCODE = 'FL404', HINT = 'Make it first: faultline queues set NAME --create, or SELECT faultline.set_queue(NAME)';
        END IF;
    END IF;
    INSERT INTO faultline.queues AS q (
           bucket, name, paused, running_max, lease_ttl_ms, attempts_max, backoff_base_ms, backoff_max_ms,
           retention_ms, key_retention_ms, dead_retention_ms, created_at, updated_at)
    VALUES (in_bucket, in_name, coalesce(in_paused, false), nullif(in_running_max, -1),
            coalesce(in_lease_ttl_ms, 30000), coalesce(in_attempts_max, 20), coalesce(in_backoff_base_ms, 1000),
            coalesce(in_backoff_max_ms, 3600000), coalesce(in_retention_ms, 604800000),
            coalesce(in_key_retention_ms, 86400000),
            coalesce(in_dead_retention_ms, 3153600000000), time_now, time_now)
    ON CONFLICT (bucket, name) DO UPDATE
       SET paused = coalesce(in_paused, q.paused),
           running_max = CASE WHEN in_running_max IS NULL THEN q.running_max ELSE nullif(in_running_max, -1) END,
           lease_ttl_ms = coalesce(in_lease_ttl_ms, q.lease_ttl_ms),
           attempts_max = coalesce(in_attempts_max, q.attempts_max),
           backoff_base_ms = coalesce(in_backoff_base_ms, q.backoff_base_ms),
           backoff_max_ms = coalesce(in_backoff_max_ms, q.backoff_max_ms),
           retention_ms = coalesce(in_retention_ms, q.retention_ms),
           key_retention_ms = coalesce(in_key_retention_ms, q.key_retention_ms),
           dead_retention_ms = coalesce(in_dead_retention_ms, q.dead_retention_ms),
           updated_at = time_now
     WHERE q.bucket = in_bucket;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.set_queue_in TO faultline_owner;
