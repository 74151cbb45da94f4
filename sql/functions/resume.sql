-- Jobs of the queue are claimed again.
CREATE OR REPLACE FUNCTION faultline.resume(queue text) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    IF NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = 0 AND q.name = queue) OR queue IS NULL THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: SELECT faultline.set_queue(NAME)';
    END IF;
    PERFORM faultline.set_queue(queue, paused => false);
END
$$;
COMMENT ON FUNCTION faultline.resume IS 'Jobs of the queue are claimed again.';
GRANT EXECUTE ON FUNCTION faultline.resume TO faultline_owner;
