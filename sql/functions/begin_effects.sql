-- Announces effects before they are run, under good leases, and says of each:
--   begun      by this very call (its id is on the row, so that the call sent again is told the same): run it
--   recorded   it was run before, and gave this result: do not run it
--   unknown    another call has announced it, and nobody knows whether it happened
--   stale      the lease is not good, and why
--
-- One job may announce several effects.
CREATE OR REPLACE FUNCTION faultline.begin_effects(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[], in_keys text[],
    in_call_ids uuid[])
RETURNS TABLE (
    id uuid, key text, status text, reason faultline.stale_reason, current_token bigint, current_worker text,
    current_state faultline.job_state, result bytea, begun_under bigint)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    verdicts faultline.verdict[];
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR coalesce(cardinality(in_workers), 0) NOT IN (1, cardinality(in_ids))
       OR cardinality(in_keys) IS DISTINCT FROM cardinality(in_ids) OR cardinality(in_call_ids) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF EXISTS (SELECT FROM unnest(in_keys) AS k(key) WHERE k.key IS NULL OR octet_length(k.key) NOT BETWEEN 1 AND 256) THEN
        RAISE EXCEPTION 'an effect has a key of 1 to 256 bytes' USING ERRCODE = 'FL400';
    END IF;
    verdicts := ARRAY(SELECT v FROM faultline.judge_writes(
                          in_bucket, in_ids, in_tokens, in_lease_ids, in_workers, ARRAY['effect'], NULL, NULL, NULL) AS v);
    time_now := faultline.clock_now();
    INSERT INTO faultline.effects AS e (bucket, job_id, key, token, lease_id, worker, call_id, started_at)
    SELECT in_bucket, m.id, m.key, m.token, m.lease_id, coalesce(m.worker, in_workers[1]), m.call_id, time_now
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_keys, in_call_ids)
           AS m(id, token, lease_id, worker, key, call_id)
     WHERE EXISTS (SELECT FROM unnest(verdicts) AS v
                    WHERE v.id = m.id AND v.token = m.token AND v.lease_id = m.lease_id AND v.status = 'good')
    ON CONFLICT (bucket, job_id, key) DO UPDATE
       -- One that was taken back may be announced anew, though not by what was taken back.
       SET token = EXCLUDED.token, lease_id = EXCLUDED.lease_id, worker = EXCLUDED.worker, call_id = EXCLUDED.call_id,
           started_at = EXCLUDED.started_at, forgotten_at = NULL
     WHERE e.bucket = in_bucket AND e.forgotten_at IS NOT NULL AND e.call_id IS DISTINCT FROM EXCLUDED.call_id;
    RETURN QUERY
    SELECT m.id, m.key,
           CASE WHEN v.status <> 'good' THEN v.status
                WHEN e.recorded_at IS NOT NULL THEN 'recorded'
                WHEN e.call_id = m.call_id AND e.token = m.token AND e.lease_id = m.lease_id
                     AND e.forgotten_at IS NULL THEN 'begun'
                ELSE 'unknown' END,
           v.reason, v.current_token, v.current_worker, v.current_state,
           CASE WHEN v.status = 'good' THEN e.result END, CASE WHEN v.status = 'good' THEN e.token END
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_keys, in_call_ids) AS m(id, token, lease_id, key, call_id)
     CROSS JOIN LATERAL (
           SELECT w.* FROM unnest(verdicts) AS w
            WHERE w.id = m.id AND w.token = m.token AND w.lease_id = m.lease_id LIMIT 1) AS v
      LEFT JOIN LATERAL (
           SELECT x.recorded_at, x.result, x.token, x.lease_id, x.call_id, x.forgotten_at FROM faultline.effects x
            WHERE x.bucket = in_bucket AND x.job_id = m.id AND x.key = m.key LIMIT 1) AS e ON true;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.begin_effects TO faultline_owner, faultline_worker;
