-- Announces an effect on the world outside before it is run, so that no attempt runs it a second time unknowingly:
--   begun      run it, then record_effect
--   recorded   an earlier attempt ran it; `recorded` is what it gave
--   unknown    an earlier attempt, or another call, announced it and nobody knows whether it happened: find out, or bury
--   stale      the lease is lost
--
-- `call_id` names this call. To send it again after a lost answer, send the same id: else it looks like another call, and
-- the answer is `unknown`.
CREATE OR REPLACE FUNCTION faultline.begin_effect(
    job uuid, token bigint, lease_id uuid, key text, call_id uuid DEFAULT gen_random_uuid(),
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text,
    OUT recorded json, OUT recorded_bytes bytea, OUT begun_under bigint)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT e.status, e.reason, e.current_token, e.current_worker, e.current_state, faultline.json_or_null(e.result),
           e.result, e.begun_under
      INTO status, reason, current_token, current_worker, current_state, recorded, recorded_bytes, begun_under
      FROM faultline.begin_effects(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY[key], ARRAY[call_id]) AS e;
END
$$;
COMMENT ON FUNCTION faultline.begin_effect IS
    'Announces an effect before it is run: `begun`, `recorded` with what it gave, `unknown`, or `stale`.';
GRANT EXECUTE ON FUNCTION faultline.begin_effect TO faultline_owner, faultline_worker;
