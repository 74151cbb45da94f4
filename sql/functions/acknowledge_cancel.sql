-- Ends a job as cancelled: what a worker says that has wound up after a heartbeat told it cancel_requested.
CREATE OR REPLACE FUNCTION faultline.acknowledge_cancel(
    job uuid, token bigint, lease_id uuid, note text DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'cancelled', NULL, note, NULL) AS s;
END
$$;
COMMENT ON FUNCTION faultline.acknowledge_cancel IS 'Ends a job as cancelled, as a heartbeat asked for.';
GRANT EXECUTE ON FUNCTION faultline.acknowledge_cancel TO faultline_owner, faultline_worker;
