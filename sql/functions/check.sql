-- Says whether a lease is good, and holds the job's row until the transaction ends: what is written in it until then is
-- covered by the fence. A stale lease leaves evidence.
CREATE OR REPLACE FUNCTION faultline.check(
    job uuid, token bigint, lease_id uuid,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT v.status, v.reason, v.current_token, v.current_worker, v.current_state
      INTO status, reason, current_token, current_worker, current_state
      FROM faultline.judge_writes(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY['check'], NULL, NULL, NULL) AS v;
END
$$;
COMMENT ON FUNCTION faultline.check IS 'Says whether a lease is `good` or `stale`, and holds the job until the transaction ends.';
GRANT EXECUTE ON FUNCTION faultline.check TO faultline_owner, faultline_worker;
