-- Ends a dead job for good, in the name of the login; its payload goes at once: `purged`, `not_dead`, `exhausted` or
-- `not_found`. The same call_id sent again is told the same again.
CREATE OR REPLACE FUNCTION faultline.purge(job uuid, call_id uuid DEFAULT gen_random_uuid()) RETURNS text
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT p.status FROM faultline.purge_jobs(
                faultline.bucket_of_id(job), ARRAY[job], session_user::text, call_id) AS p);
END
$$;
COMMENT ON FUNCTION faultline.purge IS 'Ends a dead job for good: `purged`, `not_dead`, `exhausted` or `not_found`.';
GRANT EXECUTE ON FUNCTION faultline.purge TO faultline_owner;
