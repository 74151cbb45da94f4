-- What every verb is declared with: in functions /*verb*/ stands for these lines.
--
-- It runs with the owner's rights and looks names up nowhere else, and its statements are planned by their text and the
-- schema's indexes alone: neither what ANALYZE last thought of the tables nor a session's settings may change a plan.
--
-- No verb waits for a lock for longer than a second: whoever leaves a transaction open holds up those who need the very
-- same row, and them only for that long (55P03). The store then takes a batch apart, so that the others go on.
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
    SET lock_timeout = '1s'
