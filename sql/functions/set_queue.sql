-- Makes a queue or changes its settings, in all buckets. What is not given stays as it is, or has its default. A running_max
-- of -1 takes the cap away. Whoever only wants to change one says `make => false`: then a name that is mistyped makes none.
CREATE OR REPLACE FUNCTION faultline.set_queue(
    name           text,
    paused         boolean  DEFAULT NULL,
    running_max    integer  DEFAULT NULL,
    lease_ttl      interval DEFAULT NULL,
    attempts_max   integer  DEFAULT NULL,
    backoff_base   interval DEFAULT NULL,
    backoff_max    interval DEFAULT NULL,
    retention      interval DEFAULT NULL,
    key_retention  interval DEFAULT NULL,
    dead_retention interval DEFAULT NULL,
    make           boolean  DEFAULT true
) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    problem text := CASE
        WHEN running_max < -1 THEN 'running_max is 0 or more, or -1 for no cap'
        WHEN faultline.to_ms(lease_ttl) NOT BETWEEN 100 AND 86400000 THEN 'lease_ttl is 100 ms to 24 h'
        WHEN attempts_max NOT BETWEEN 1 AND 1000000 THEN 'attempts_max is 1 to 1000000'
        WHEN faultline.to_ms(backoff_base) NOT BETWEEN 0 AND 86400000 THEN 'backoff_base is 0 to 24 h'
        WHEN faultline.to_ms(backoff_max) NOT BETWEEN 0 AND 604800000 THEN 'backoff_max is 0 to 7 days'
        WHEN faultline.to_ms(retention) NOT BETWEEN 0 AND 3153600000000 THEN 'retention is 0 to 36500 days'
        WHEN faultline.to_ms(key_retention) NOT BETWEEN 0 AND 3153600000000 THEN 'key_retention is 0 to 36500 days'
        WHEN faultline.to_ms(dead_retention) NOT BETWEEN 0 AND 3153600000000 THEN 'dead_retention is 0 to 36500 days' END;
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem USING ERRCODE = 'FL400';
    END IF;
    PERFORM faultline.set_queue_in(
                m.bucket, name, paused, running_max, faultline.to_ms(lease_ttl)::integer, attempts_max,
                faultline.to_ms(backoff_base)::integer, faultline.to_ms(backoff_max)::integer,
                faultline.to_ms(retention), faultline.to_ms(key_retention), faultline.to_ms(dead_retention),
                make)
       FROM faultline.meta m ORDER BY m.bucket;
    -- What waited while it was paused or full may go on.
    IF NOT paused OR running_max IS NOT NULL THEN
        PERFORM faultline.announce(name);
    END IF;
END
$$;
COMMENT ON FUNCTION faultline.set_queue IS
    'Makes a queue or changes its settings; what is not given stays. A running_max of -1 takes the cap away.';
GRANT EXECUTE ON FUNCTION faultline.set_queue TO faultline_owner;
