-- Jobs of the queue are claimed again.
CREATE OR REPLACE FUNCTION faultline.resume(queue text) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    PERFORM faultline.set_queue(queue, paused => false, make => false);
END
$$;
COMMENT ON FUNCTION faultline.resume IS 'Jobs of the queue are claimed again.';
GRANT EXECUTE ON FUNCTION faultline.resume TO faultline_owner;
