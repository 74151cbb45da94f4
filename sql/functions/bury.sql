-- Ends an attempt and with it the job, as dead: trying again does not help. Somebody may requeue it.
CREATE OR REPLACE FUNCTION faultline.bury(
    job uuid, token bigint, lease_id uuid, error text,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'buried', NULL, error, NULL) AS s;
END
$$;
COMMENT ON FUNCTION faultline.bury IS 'Ends an attempt that cannot succeed: the job is dead at once.';
GRANT EXECUTE ON FUNCTION faultline.bury TO faultline_owner, faultline_worker;
