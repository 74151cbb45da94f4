-- Ends one attempt, for complete, fail and the others, and wakes workers if the job may go on at once.
CREATE OR REPLACE FUNCTION faultline.settle_one(
    job uuid, token bigint, lease_id uuid, outcome faultline.outcome, result bytea, error text, delay interval,
    OUT status text, OUT reason text, OUT current_token bigint, OUT current_worker text, OUT current_state text)
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_variable
DECLARE
    place     smallint := faultline.lease_bucket(job, token, lease_id);
    due_queue text;
BEGIN
    SELECT s.status, s.reason, s.current_token, s.current_worker, s.current_state, s.due_queue
      INTO status, reason, current_token, current_worker, current_state, due_queue
      FROM faultline.settle_jobs(
          place, ARRAY[job], ARRAY[token], ARRAY[lease_id],
          ARRAY[faultline.lease_holder(place, job, token, lease_id)], ARRAY[outcome], ARRAY[result],
          ARRAY[left(error, 16384)], ARRAY[faultline.to_ms(delay)], NULL) AS s;
    IF due_queue IS NOT NULL THEN
        PERFORM faultline.announce(due_queue);
    END IF;
END
$$;
