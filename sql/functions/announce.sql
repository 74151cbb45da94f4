-- Wakes idle workers, by a NOTIFY with the queue's name: a hint, because workers poll in any case. NOTIFY takes a lock
-- that all transactions which use it hold until they have committed, so a session does not announce the same queue
-- twice in two milliseconds; a setting of the session remembers the last announcement, and a rollback
-- undoes both. Workers that were woken look again for a while, and find what came in the meantime.
CREATE OR REPLACE FUNCTION faultline.announce(queue text) RETURNS void
    LANGUAGE plpgsql VOLATILE
    SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    window_now text := queue || ' ' || floor(extract(epoch FROM clock_timestamp()) * 500)::bigint;
BEGIN
    IF current_setting('faultline.announced', true) IS DISTINCT FROM window_now THEN
        PERFORM set_config('faultline.announced', window_now, false);
        PERFORM pg_notify('faultline_jobs', queue);
    END IF;
END
$$;
