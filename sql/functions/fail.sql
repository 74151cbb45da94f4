-- Ends an attempt that failed. The job is tried again after its backoff, or after `retry_in`; it is dead when its attempts
-- are used up.
CREATE OR REPLACE FUNCTION faultline.fail(
    job uuid, token bigint, lease_id uuid, error text, retry_in interval DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'failed', NULL, error, retry_in) AS s;
END
$$;
COMMENT ON FUNCTION faultline.fail IS
    'Ends an attempt that failed: the job is tried again later, or is dead when its attempts are used up.';
GRANT EXECUTE ON FUNCTION faultline.fail TO faultline_owner, faultline_worker;
