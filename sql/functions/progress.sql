-- Notes how far a running job is, for those who watch it. It renews nothing.
CREATE OR REPLACE FUNCTION faultline.progress(
    job uuid, token bigint, lease_id uuid, fraction double precision, note text DEFAULT NULL,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    place smallint := faultline.lease_bucket(job, token, lease_id);
BEGIN
    SELECT v.status, v.reason, v.current_token, v.current_worker, v.current_state
      INTO status, reason, current_token, current_worker, current_state
      FROM faultline.report_progress(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id], ARRAY[faultline.lease_holder(place, job, token, lease_id)],
          ARRAY[fraction], ARRAY[note]) AS v;
END
$$;
COMMENT ON FUNCTION faultline.progress IS 'Notes how far a running job is: a fraction from 0 to 1, and a note.';
GRANT EXECUTE ON FUNCTION faultline.progress TO faultline_owner, faultline_worker;
