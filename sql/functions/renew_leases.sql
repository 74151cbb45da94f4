-- Renews leases, all of a worker's at once, and tells which jobs are to be cancelled. A renewal never changes the
-- token, and an expired lease is never renewed: the rows are locked first and judged by the time after that. No column
-- that changes is in an index: the update is heap-only.
--
-- A row that somebody else has locked is passed over and answered with `busy`: neither renewed nor lost, to be tried again.
-- So whoever sits on one row costs nobody else a lease. Who asks for a single one waits for it, as other verbs do.
--
-- A lease is renewed by the TTL that it was granted with, which its worker goes by; what the queue or the job says
-- meanwhile holds for the next claim. in_ttls_ms, where given, is used instead.
--
-- A renewal never shortens a lease: the watchdog looks no earlier than it was told to (grants.check_at). A lease whose
-- job is to be cancelled keeps its expiry: the worker has until then to wind up.
--
-- in_begun and in_alone, where given: how far each attempt is. What has begun stays so.
--
-- in_ids ascend; in_workers has one element per lease, or one for all.
CREATE OR REPLACE FUNCTION faultline.renew_leases(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[], in_workers text[], in_ttls_ms bigint[],
    in_verb text, in_begun boolean[], in_alone boolean[])
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
    begins   boolean[];
    alones   boolean[];
    rest     record;
    locked   uuid[];
    busy     uuid[];
    verdicts faultline.verdict[];
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids)
       OR coalesce(cardinality(in_workers), 0) NOT IN (1, cardinality(in_ids)) OR cardinality(in_ttls_ms) <> cardinality(in_ids)
       OR array_position(in_ids, NULL) IS NOT NULL OR cardinality(in_begun) <> cardinality(in_ids) OR cardinality(in_alone) <> cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    IF EXISTS (SELECT FROM unnest(in_ttls_ms) AS t(ms) WHERE t.ms NOT BETWEEN 100 AND 86400000) THEN
        RAISE EXCEPTION 'a lease is renewed for 100 ms to 24 h' USING ERRCODE = 'FL400';
    END IF;
    IF cardinality(in_ids) = 1 THEN
        PERFORM FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = in_ids[1] FOR UPDATE;
    END IF;
    SELECT array_agg(j.job), array_agg(mine.ttl_ms), array_agg(mine.begun), array_agg(mine.alone)
      INTO rows, ttls, begins, alones
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_ttls_ms, in_begun, in_alone)
           AS mine(id, token, lease_id, ttl_ms, begun, alone)
     CROSS JOIN LATERAL (
           SELECT t AS job FROM faultline.jobs t
            WHERE t.bucket = in_bucket AND t.id = mine.id AND t.token = mine.token
              AND t.lease_id = mine.lease_id AND t.lease_expires_at > time_now
              FOR UPDATE SKIP LOCKED) AS j;
    time_now := faultline.clock_now();
    SELECT array_agg(e.id), array_agg(e.begun OR coalesce(e.begins, false)), array_agg(coalesce(e.is_alone, e.alone)), array_agg(
               CASE WHEN e.cancel_requested_at IS NOT NULL THEN e.lease_expires_at
                    ELSE greatest(e.lease_expires_at,
                                  least(time_now + coalesce(e.ttl_ms, e.granted_ttl_ms) * interval '1 millisecond',
                                        e.claimed_at + e.run_max_ms * interval '1 millisecond'))
               END)
      INTO ids, begins, alones, ends
      FROM unnest(ttls, begins, alones, rows) AS e(ttl_ms, begins, is_alone)
     WHERE e.lease_expires_at > time_now;
    RETURN QUERY
    UPDATE faultline.jobs j SET lease_expires_at = n.ends_at, begun = n.begun, alone = n.alone
      FROM unnest(ids, ends, begins, alones) AS n(id, ends_at, begun, alone)
     WHERE j.bucket = in_bucket AND j.id = n.id AND n.ends_at > '-infinity' AND n.ends_at < 'infinity'
    RETURNING j.id, 'committed', NULL::faultline.stale_reason, NULL::bigint, NULL::text, NULL::faultline.job_state,
              j.lease_expires_at, j.cancel_requested_at IS NOT NULL, j.cancel_reason;
    IF cardinality(ids) >= cardinality(in_ids) THEN
        RETURN;
    END IF;

    ids := ARRAY(SELECT m.id FROM unnest(in_ids) AS m(id) WHERE m.id <> ALL (coalesce(ids, '{}')));
    SELECT coalesce(array_agg(l.id), '{}') INTO locked
      FROM (SELECT j.id FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = ANY (ids)
               FOR UPDATE SKIP LOCKED) AS l;
    busy := ARRAY(SELECT j.id FROM faultline.jobs j
                   WHERE j.bucket = in_bucket AND j.id = ANY (ids) AND j.id <> ALL (locked));
    RETURN QUERY
    SELECT b.id, 'busy', NULL::faultline.stale_reason, NULL::bigint, NULL::text, NULL::faultline.job_state,
           NULL::timestamptz, NULL::boolean, NULL::text
      FROM unnest(busy) AS b(id);
    SELECT array_agg(m.id) AS ids, array_agg(m.token) AS tokens, array_agg(m.lease_id) AS lease_ids,
           array_agg(coalesce(m.worker, in_workers[1])) AS workers, array_agg(m.ttl_ms) AS ttls,
           array_agg(m.begun) AS begun, array_agg(m.alone) AS alone
      INTO rest
      FROM unnest(in_ids, in_tokens, in_lease_ids, in_workers, in_ttls_ms, in_begun, in_alone)
           AS m(id, token, lease_id, worker, ttl_ms, begun, alone)
     WHERE m.id = ANY (ids) AND m.id <> ALL (busy);
    IF rest.ids IS NULL THEN
        RETURN;
    END IF;
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
               array_agg(m.worker) AS workers, array_agg(m.ttl_ms) AS ttls, array_agg(m.begun) AS begun,
               array_agg(m.alone) AS alone
          INTO rest
          FROM unnest(rest.ids, rest.tokens, rest.lease_ids, rest.workers, rest.ttls, rest.begun, rest.alone)
               AS m(id, token, lease_id, worker, ttl_ms, begun, alone)
         WHERE m.id = ANY (ids);
        RETURN QUERY
        SELECT r.* FROM faultline.renew_leases(
            in_bucket, rest.ids, rest.tokens, rest.lease_ids, rest.workers, rest.ttls, in_verb, rest.begun,
            rest.alone) AS r;
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.renew_leases TO faultline_owner, faultline_worker;
