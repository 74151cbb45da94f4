-- Ends an attempt with success. `committed` and `repeated` (this very call came before, and only its answer was lost) are
-- success; `stale` is not, and then whatever else the transaction wrote must be rolled back: complete_or_abort does that.
CREATE OR REPLACE FUNCTION faultline.complete(
    job uuid, token bigint, lease_id uuid, result jsonb DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    SELECT s.* INTO status, reason, current_token, current_worker, current_state
      FROM faultline.settle_one(job, token, lease_id, 'succeeded', faultline.result_bytes(result), NULL, NULL) AS s;
END
$$;
COMMENT ON FUNCTION faultline.complete IS 'Ends an attempt with success.';
GRANT EXECUTE ON FUNCTION faultline.complete TO faultline_owner, faultline_worker;
