-- Gives a job back for later. The attempt does not count.
CREATE OR REPLACE FUNCTION faultline.snooze(
    job uuid, token bigint, lease_id uuid, delay interval,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    IF delay IS NULL THEN
        RAISE EXCEPTION 'a snooze needs a delay' USING ERRCODE = 'FL400', HINT = 'To give the job back at once, release it.';
    END IF;
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'snoozed', NULL, NULL, delay) AS s;
END
$$;
COMMENT ON FUNCTION faultline.snooze IS 'Gives a job back for later; the attempt does not count.';
GRANT EXECUTE ON FUNCTION faultline.snooze TO faultline_owner, faultline_worker;
