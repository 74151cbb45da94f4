-- No job of the queue is claimed from now on. What runs goes on.
CREATE OR REPLACE FUNCTION faultline.pause(queue text) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    IF NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = 0 AND q.name = queue) OR queue IS NULL THEN
        RAISE EXCEPTION 'there is no queue %', quote_nullable(queue)
            USING ERRCODE = 'FL404', HINT = 'Make it first: SELECT faultline.set_queue(NAME)';
    END IF;
    PERFORM faultline.set_queue(queue, paused => true);
END
$$;
COMMENT ON FUNCTION faultline.pause IS 'No job of the queue is claimed from now on; what runs goes on.';
GRANT EXECUTE ON FUNCTION faultline.pause TO faultline_owner;
