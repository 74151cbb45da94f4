-- Records what an effect gave. The first result stays and comes back, whatever is sent later.
CREATE OR REPLACE FUNCTION faultline.record_effect(
    job uuid, token bigint, lease_id uuid, key text, result jsonb DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text,
    OUT recorded json, OUT recorded_bytes bytea)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT e.status, e.reason, e.current_token, e.current_worker, e.current_state, faultline.json_or_null(e.result), e.result
      INTO status, reason, current_token, current_worker, current_state, recorded, recorded_bytes
      FROM faultline.record_effects(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY[key], ARRAY[faultline.result_bytes(result)]) AS e;
END
$$;
COMMENT ON FUNCTION faultline.record_effect IS 'Records what an effect gave: `recorded`, with the first result that was, or `stale`.';
GRANT EXECUTE ON FUNCTION faultline.record_effect TO faultline_owner, faultline_worker;
