-- One round of the watchdog: ends the attempts whose lease has run out, so that their jobs go on, 1000 in each bucket at
-- most, and returns how many.
-- Somebody has to call it every few seconds: servers and workers of the library do it by themselves, SQL workers between
-- two claims, or pg_cron. Any number may at once.
CREATE OR REPLACE FUNCTION faultline.sweep() RETURNS bigint
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    ended bigint := 0;
    place smallint;
    one   record;
BEGIN
    FOR place IN SELECT m.bucket FROM faultline.meta m ORDER BY m.bucket LOOP
        FOR one IN
            SELECT x.id, x.queue, x.due FROM faultline.expire_leases(place, 1000) AS x
             WHERE x.id IS NOT NULL AND x.problem IS NULL
        LOOP
            ended := ended + 1;
            IF one.due THEN
                PERFORM faultline.announce(one.queue);
            END IF;
        END LOOP;
    END LOOP;
    RETURN ended;
END
$$;
COMMENT ON FUNCTION faultline.sweep IS
    'Ends the attempts whose lease has run out and returns how many. '
    'To be called every few seconds where neither a server nor a worker of the library runs.';
GRANT EXECUTE ON FUNCTION faultline.sweep TO faultline_owner, faultline_worker;
