-- Takes up to `max` due jobs of a queue and grants their leases. No row: there is nothing to do now, the queue is paused,
-- or as many of its jobs run as may. The caller commits before it begins to work: until then nobody sees the lease, and
-- no heartbeat gets at the row.
--
-- The claim's name for the worker is what the evidence says; without one it is the login's.
--
-- It asks the buckets in turn, beginning with one of them at random, so that none of them waits for the others to be empty.
CREATE OR REPLACE FUNCTION faultline.claim(queue text DEFAULT 'default', worker text DEFAULT NULL, max integer DEFAULT 1)
RETURNS TABLE (
    id uuid, token bigint, lease_id uuid, lease_expires_at timestamptz, lease_ttl interval, attempt integer,
    attempts_max integer, kind text, payload json, payload_bytes bytea, priority integer, run_at timestamptz,
    created_at timestamptz, run_max interval, delivery text, requeues integer, tags text[], traceparent text)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    lease  uuid := gen_random_uuid();
    places integer;
    first  integer;
    known  boolean := false;
    more   boolean := false;
    one    record;
BEGIN
    -- The count of running jobs must be the newest one, not that of the transaction's beginning.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a claim needs the isolation level READ COMMITTED'
            USING ERRCODE = 'FL400', HINT = 'Claim in a transaction of its own.';
    END IF;
    SELECT m.buckets INTO places FROM faultline.meta m WHERE m.bucket = 0;
    first := floor(random() * places)::integer;
    FOR i IN first .. first + places - 1 LOOP
        FOR one IN
            SELECT c.* FROM faultline.claim_jobs(
                (i % places)::smallint, queue, coalesce(worker, session_user::text), lease, max,
                '{0,1,2,3,4,5,6,7,8,9}', array_fill(timestamptz '-infinity', ARRAY[10]),
                array_fill(uuid '00000000-0000-0000-0000-000000000000', ARRAY[10]), false, false, NULL) AS c
        LOOP
            known := true;
            more := one.more;
            CONTINUE WHEN one.id IS NULL;
            max := max - 1;
            RETURN QUERY SELECT
                one.id, one.token, lease, one.lease_expires_at, one.lease_ttl_ms * interval '1 millisecond',
                one.attempt, one.attempts_max, one.kind, p.shown, CASE WHEN p.shown IS NULL THEN one.payload END,
                one.priority::integer, one.run_at, one.created_at, one.run_max_ms * interval '1 millisecond',
                one.delivery::text, one.requeues, one.tags, one.traceparent
              FROM (SELECT CASE one.encoding WHEN 'json' THEN faultline.json_or_null(one.payload) END AS shown) AS p;
        END LOOP;
        EXIT WHEN max < 1 OR more;
    END LOOP;
    IF NOT known THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: SELECT faultline.set_queue(NAME)';
    END IF;
END
$$;
COMMENT ON FUNCTION faultline.claim IS
    'Takes up to max due jobs of a queue, and 16 MiB of payloads, and grants a lease on each: id, token and lease_id, which every write sends.';
GRANT EXECUTE ON FUNCTION faultline.claim TO faultline_owner, faultline_worker;
