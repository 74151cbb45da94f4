-- Cancels a job, in the name of the login: `cancelled`, `requested` (it runs; its worker learns of it), `finished`,
-- `exhausted` or `not_found`. The same call_id sent again is told the same again.
CREATE OR REPLACE FUNCTION faultline.cancel(job uuid, reason text DEFAULT NULL, call_id uuid DEFAULT gen_random_uuid())
RETURNS text
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    -- session_user: within a function of the owner's, current_user is the owner.
    RETURN (SELECT c.status FROM faultline.cancel_jobs(
                faultline.bucket_of_id(job), ARRAY[job], session_user::text, left(reason, 16384), call_id) AS c);
END
$$;
COMMENT ON FUNCTION faultline.cancel IS
    'Cancels a job: `cancelled`, `requested` (it runs; its worker learns of it), `finished`, `exhausted` or `not_found`.';
GRANT EXECUTE ON FUNCTION faultline.cancel TO faultline_owner;
