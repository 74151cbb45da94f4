-- Takes back an announced effect that certainly did not happen, so that it may be announced anew. With the `call_id` of
-- the announcement nothing else is taken back, however late this arrives.
CREATE OR REPLACE FUNCTION faultline.forget_effect(
    job uuid, token bigint, lease_id uuid, key text, call_id uuid DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT v.status, v.reason, v.current_token, v.current_worker, v.current_state
      INTO status, reason, current_token, current_worker, current_state
      FROM faultline.forget_effects(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY[key], ARRAY[call_id]) AS v;
END
$$;
COMMENT ON FUNCTION faultline.forget_effect IS 'Takes back an announced effect that certainly did not happen.';
GRANT EXECUTE ON FUNCTION faultline.forget_effect TO faultline_owner, faultline_worker;
