-- Renews leases, all of a worker's at once, and tells which jobs are to be cancelled. A renewal never changes the
-- token, and an expired lease is never renewed: the rows are locked first and judged by the time after that. Only
-- lease_expires_at changes, which no index names: the update is heap-only.
--
-- A lease is renewed by the TTL that it was granted with, which its worker goes by; what the queue or the job says
-- meanwhile holds for the next claim. in_ttls_ms, where given, is used instead.
--
-- A renewal never shortens a lease: the watchdog looks no earlier than it was told to (grants.check_at). A lease whose
-- job is to be cancelled keeps its expiry: the worker has until then to wind up.
--
-- in_ids ascend; in_workers has one element per lease, or one for all.
CREATE OR REPLACE FUNCTION faultline.renew_leases(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[], in_ttls_ms bigint[],
    in_verb text)
RETURNS TABLE (
    id uuid, status text, reason faultline.stale_reason, current_token bigint, current_worker text,
    current_state faultline.job_state, lease_expires_at timestamptz, cancel_requested boolean, cancel_reason text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    rows     faultline.jobs[];
    ttls     bigint[];
    ids      uuid[];
    ends     timestamptz[];
    rest     record;
    verdicts faultline.verdict[];
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR coalesce(cardinality(in_workers), 0) NOT IN (1, cardinality(in_ids)) OR cardinality(in_ttls_ms) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF EXISTS (SELECT FROM unnest(in_ttls_ms) AS t(ms) WHERE t.ms NOT BETWEEN 100 AND 86400000) THEN
        RAISE EXCEPTION 'a lease is renewed for 100 ms to 24 h' USING ERRCODE = 'FL400';
    END IF;
    SELECT array_agg(j.job), array_agg(mine.ttl_ms) INTO rows, ttls
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_ttls_ms) AS mine(id, token, lease_id, ttl_ms)
     CROSS JOIN LATERAL (
           SELECT t AS job FROM faultline.jobs t
            WHERE t.bucket = in_bucket AND t.id = mine.id AND t.token = mine.token
              AND t.lease_id = mine.lease_id AND t.lease_expires_at > time_now
              FOR UPDATE) AS j;
    time_now := faultline.clock_now();
    SELECT array_agg(e.id), array_agg(
               CASE WHEN e.cancel_requested_at IS NOT NULL THEN e.lease_expires_at
                    ELSE greatest(e.lease_expires_at,
                                  least(time_now + coalesce(e.ttl_ms, e.granted_ttl_ms) * interval '1 millisecond',
                                        e.claimed_at + e.run_max_ms * interval '1 millisecond'))
               END)
      INTO ids, ends
      FROM unnest(ttls, rows) AS e(ttl_ms)
     WHERE e.lease_expires_at > time_now;
    RETURN QUERY
    UPDATE faultline.jobs j SET lease_expires_at = n.ends_at
      FROM unnest(ids, ends) AS n(id, ends_at)
     WHERE j.bucket = in_bucket AND j.id = n.id AND n.ends_at > '-infinity' AND n.ends_at < 'infinity'
    RETURNING j.id, 'committed', NULL::faultline.stale_reason, NULL::bigint, NULL::text, NULL::faultline.job_state,
              j.lease_expires_at, j.cancel_requested_at IS NOT NULL, j.cancel_reason;
    IF cardinality(ids) >= cardinality(in_ids) THEN
        RETURN;
    END IF;

    SELECT array_agg(m.id) AS ids, array_agg(m.token) AS tokens, array_agg(m.lease_id) AS lease_ids,
           array_agg(coalesce(m.worker, in_workers[1])) AS workers, array_agg(m.ttl_ms) AS ttls
      INTO rest
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_ttls_ms) AS m(id, token, lease_id, worker, ttl_ms)
     WHERE m.id <> ALL (coalesce(ids, '{}'));
    verdicts := ARRAY(SELECT w FROM faultline.judge_writes(
                          in_bucket, rest.ids, rest.tokens, rest.lease_ids, rest.workers, ARRAY[in_verb],
                          NULL, NULL, NULL) AS w);
    RETURN QUERY
    SELECT v.id, v.status, v.reason, v.current_token, v.current_worker, v.current_state, NULL::timestamptz,
           NULL::boolean, NULL::text
      FROM unnest(verdicts) AS v WHERE v.status <> 'good';
    ids := ARRAY(SELECT v.id FROM unnest(verdicts) AS v WHERE v.status = 'good');
    IF ids <> '{}' THEN
        -- Renewed at the last moment by another heartbeat, which held the row when we came. Now we hold it.
        SELECT array_agg(m.id) AS ids, array_agg(m.token) AS tokens, array_agg(m.lease_id) AS lease_ids,
               array_agg(m.worker) AS workers, array_agg(m.ttl_ms) AS ttls
          INTO rest
          FROM unnest(rest.ids, rest.tokens, rest.lease_ids, rest.workers, rest.ttls)
               AS m(id, token, lease_id, worker, ttl_ms)
         WHERE m.id = ANY (ids);
        RETURN QUERY
        SELECT r.* FROM faultline.renew_leases(
            in_bucket, rest.ids, rest.tokens, rest.lease_ids, rest.workers, rest.ttls, in_verb) AS r;
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.renew_leases TO faultline_owner, faultline_worker;
