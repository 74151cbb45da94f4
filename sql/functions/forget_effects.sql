-- Takes back announced effects that certainly did not happen, under the good leases that announced them. It names the
-- call that announced: a message that is delivered late takes back nothing that was announced since. One that was
-- recorded stays. The row stays too, marked, so that its announcement is not taken for news if it is delivered again.
-- Without a call, whatever was announced under the lease is meant.
CREATE OR REPLACE FUNCTION faultline.forget_effects(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[], in_keys text[],
    in_call_ids uuid[])
RETURNS TABLE (
    id uuid, key text, status text, reason faultline.stale_reason, current_token bigint, current_worker text,
    current_state faultline.job_state)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    one      record;
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR coalesce(cardinality(in_workers), 0) NOT IN (1, cardinality(in_ids))
       OR cardinality(in_keys) IS DISTINCT FROM cardinality(in_ids) OR cardinality(in_call_ids) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    PERFORM FROM (SELECT j.id FROM faultline.jobs j
                   WHERE j.bucket = in_bucket AND j.id = ANY (in_ids) ORDER BY j.id FOR UPDATE) AS locked;
    time_now := faultline.clock_now();
    FOR one IN
        SELECT m.id, m.token, m.lease_id, coalesce(m.worker, in_workers[1]) AS worker, m.key, m.call_id
          FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_keys, in_call_ids)
               AS m(id, token, lease_id, worker, key, call_id)
    LOOP
        -- A job that is to be cancelled has this much to say all the same.
        PERFORM FROM faultline.jobs j
          WHERE j.bucket = in_bucket AND j.id = one.id AND j.token = one.token AND j.lease_id = one.lease_id
            AND j.lease_expires_at > time_now;
        IF FOUND THEN
            UPDATE faultline.effects e SET forgotten_at = time_now
             WHERE e.bucket = in_bucket AND e.job_id = one.id AND e.key = one.key AND e.token = one.token
               AND e.lease_id = one.lease_id AND e.recorded_at IS NULL
               AND (one.call_id IS NULL OR e.call_id = one.call_id);
            RETURN QUERY
            SELECT one.id, one.key, 'committed', NULL::faultline.stale_reason, NULL::bigint, NULL::text,
                   NULL::faultline.job_state;
        ELSE
            RETURN QUERY
            SELECT v.id, one.key, v.status, v.reason, v.current_token, v.current_worker, v.current_state
              FROM faultline.judge_writes(
                       in_bucket, ARRAY[one.id], ARRAY[one.token], ARRAY[one.lease_id], ARRAY[one.worker],
                       ARRAY['effect'], NULL, NULL, NULL) AS v;
        END IF;
    END LOOP;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.forget_effects TO faultline_owner, faultline_worker;
