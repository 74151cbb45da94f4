-- Retires idempotency keys that have outlived their job for long enough; those whose job is on record go with it
-- (prune_jobs). In batches; two that prune at once pass over each other's.
CREATE OR REPLACE FUNCTION faultline.prune_keys(in_bucket smallint, in_limit bigint) RETURNS bigint
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    queues   text[];
    keys     text[];
BEGIN
    SELECT array_agg(o.queue), array_agg(o.key) INTO queues, keys
      FROM (SELECT k.queue, k.key FROM faultline.idempotency_keys k
             WHERE k.bucket = in_bucket AND k.expires_at <= time_now
             ORDER BY k.expires_at
             LIMIT in_limit
               FOR UPDATE SKIP LOCKED) AS o;
    -- One key at a time: in one statement, the planner would walk all keys of a table that looks empty to it.
    FOR i IN 1 .. coalesce(cardinality(keys), 0) LOOP
        DELETE FROM faultline.idempotency_keys k
         WHERE k.bucket = in_bucket AND k.queue = queues[i] AND k.key = keys[i];
    END LOOP;
    RETURN coalesce(cardinality(keys), 0);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.prune_keys TO faultline_owner, faultline_worker;
