-- No job of the queue is claimed from now on. What runs goes on.
CREATE OR REPLACE FUNCTION faultline.pause(queue text) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    PERFORM faultline.set_queue(queue, paused => true, make => false);
END
$$;
COMMENT ON FUNCTION faultline.pause IS 'No job of the queue is claimed from now on; what runs goes on.';
GRANT EXECUTE ON FUNCTION faultline.pause TO faultline_owner;
