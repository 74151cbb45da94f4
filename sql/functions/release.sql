-- Gives a job back at once, to whoever comes. The attempt does not count.
CREATE OR REPLACE FUNCTION faultline.release(
    job uuid, token bigint, lease_id uuid,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'released', NULL, NULL, NULL) AS s;
END
$$;
COMMENT ON FUNCTION faultline.release IS 'Gives a job back at once; the attempt does not count.';
GRANT EXECUTE ON FUNCTION faultline.release TO faultline_owner, faultline_worker;
