-- The watchdog: ends the attempts whose lease has run out, through the same branch as a reported failure. Any number of
-- watchdogs may run it at the same time; a row is reaped once, because
--   * a claim's row in `grants` is taken by one of them (SKIP LOCKED), and
--   * the job row is locked, and found still to carry this lease and an expiry in the past, before it is
--     touched. A heartbeat or settlement that is under way holds the row: it is passed over until the
--     next sweep, and its grant stays.
-- in_claims_max bounds a sweep, so that ten thousand expiries are worked off in batches.
--
-- A job that is to be cancelled ends as cancelled; at_most_once is buried; hold waits for a person.
--
-- One job that cannot be handled must not keep the others from being recovered. When the batch fails, its jobs are tried
-- one by one; those that fail come back with the error, and are tried again a minute later.
--
-- Answers a row per expired lease. `claims_seen` is on every row, and comes alone where nothing had expired: a full
-- sweep means that there may be more.
CREATE OR REPLACE FUNCTION faultline.expire_leases(in_bucket smallint, in_claims_max bigint)
RETURNS TABLE (
    claims_seen bigint, id uuid, token bigint, worker text, queue text, attempt integer,
    next_state faultline.job_state, lease_expires_at timestamptz, due boolean, traceparent text, problem text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now  timestamptz := faultline.clock_now();
    check_ats timestamptz[];
    claims    uuid[];
    taken     uuid[];
    taken_by  uuid[];
    rows      faultline.jobs[];
    troubled  uuid[] := '{}';
    seen      bigint;
    one       faultline.jobs;
    said      text;
BEGIN
    SELECT array_agg(ripe.check_at), array_agg(ripe.lease_id) INTO check_ats, claims
      FROM (SELECT g.check_at, g.lease_id
              FROM faultline.grants g
             WHERE g.bucket = in_bucket AND g.check_at <= time_now
             ORDER BY g.check_at, g.lease_id
             LIMIT in_claims_max
               FOR UPDATE SKIP LOCKED) AS ripe;
    seen := coalesce(cardinality(claims), 0);
    IF seen = 0 THEN
        claims_seen := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT array_agg(t.id), array_agg(c.lease_id) INTO taken, taken_by
      FROM unnest(check_ats, claims) AS c(check_at, lease_id)
     CROSS JOIN LATERAL (
           SELECT g.job_ids FROM faultline.grants g
            WHERE g.bucket = in_bucket AND g.check_at = c.check_at AND g.lease_id = c.lease_id LIMIT 1) AS g
     CROSS JOIN LATERAL unnest(g.job_ids) AS t(id);
    SELECT array_agg(j.job) INTO rows
      FROM unnest(taken, taken_by) AS c(id, lease_id)
     CROSS JOIN LATERAL (
           SELECT t AS job FROM faultline.jobs t
            WHERE t.bucket = in_bucket AND t.id = c.id AND t.lease_id = c.lease_id AND t.lease_expires_at <= time_now
              FOR UPDATE SKIP LOCKED) AS j;

    IF rows IS NOT NULL THEN
        BEGIN
            RETURN QUERY
            SELECT seen, e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at, e.due,
                   e.traceparent, NULL::text
              FROM faultline.end_expired(in_bucket, time_now, rows) AS e;
        EXCEPTION WHEN OTHERS THEN
            FOREACH one IN ARRAY rows LOOP
                BEGIN
                    RETURN QUERY
                    SELECT seen, e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at, e.due,
                           e.traceparent, NULL::text
                      FROM faultline.end_expired(in_bucket, time_now, ARRAY[one]) AS e;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT;
                    troubled := troubled || one.id;
                    RETURN QUERY
                    SELECT seen, one.id, one.token, one.worker, one.queue, one.attempt, one.state, one.lease_expires_at,
                           false, one.traceparent, said;
                END;
            END LOOP;
        END;
    ELSE
        claims_seen := seen;
        RETURN NEXT;
    END IF;

    -- What each claim still holds, and when the first of these leases may run out, goes back as a row of its own.
    -- Deleted one key at a time: in one statement, the planner would walk all grants of a table that looks empty to it.
    FOR i IN 1 .. cardinality(claims) LOOP
        DELETE FROM faultline.grants g
         WHERE g.bucket = in_bucket AND g.check_at = check_ats[i] AND g.lease_id = claims[i];
    END LOOP;
    INSERT INTO faultline.grants AS g (bucket, check_at, lease_id, job_ids)
    SELECT in_bucket, k.check_at, k.lease_id, k.job_ids
      FROM (SELECT c.lease_id, array_agg(c.id) AS job_ids,
                   min(CASE WHEN c.id = ANY (troubled) THEN time_now + interval '1 minute'
                            ELSE h.lease_expires_at END) AS check_at
              FROM unnest(taken, taken_by) AS c(id, lease_id)
             CROSS JOIN LATERAL (
                   SELECT t.lease_expires_at FROM faultline.jobs t
                    WHERE t.bucket = in_bucket AND t.id = c.id AND t.lease_id = c.lease_id LIMIT 1) AS h
             GROUP BY c.lease_id) AS k
    ON CONFLICT (bucket, check_at, lease_id) DO UPDATE
       -- A claim that was delivered twice has two rows.
       SET job_ids = g.job_ids || EXCLUDED.job_ids
     WHERE g.bucket = in_bucket;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.expire_leases TO faultline_owner, faultline_worker;
