-- The one branch that every failure takes, reported or found by the watchdog: again, or dead when the
-- attempts, or the tokens, are used up.
CREATE OR REPLACE FUNCTION faultline.state_after_failure(attempt integer, attempts_max integer, token bigint)
    RETURNS faultline.job_state LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN attempt >= attempts_max OR token = 9223372036854775807
                THEN 'dead'::faultline.job_state ELSE 'available' END
    $$;
