-- The watchdog: ends the attempts whose lease has run out, through the same branch as a reported failure. Any number of
-- watchdogs may run it at the same time; a row is reaped once, because
--   * a claim's row in `grants` is taken by one of them (SKIP LOCKED), and
--   * the job row is locked, and found still to carry this lease and an expiry in the past, before it is
--     touched. A heartbeat or settlement that is under way holds the row: it is passed over until the
--     next sweep, and its grant stays.
-- in_jobs_max bounds a sweep, so that ten thousand expiries are worked off in batches, whether they come of many claims or
-- of few large ones. Of a claim that is larger than what is left, some jobs are ended, and its row stays for the others.
--
-- A job that is to be cancelled ends as cancelled; at_most_once is buried; hold waits for a person.
--
-- One job that cannot be handled must not keep the others from being recovered. When the batch fails, its jobs are tried
-- one by one; those that fail come back with the error, and are tried again a minute later.
--
-- Answers a row per expired lease. `more` is on every row, and comes alone where nothing had expired: the sweep was full,
-- and there may be more.
CREATE OR REPLACE FUNCTION faultline.expire_leases(in_bucket smallint, in_jobs_max bigint)
RETURNS TABLE (
    more boolean, id uuid, token bigint, worker text, queue text, attempt integer,
    next_state faultline.job_state, lease_expires_at timestamptz, due boolean, traceparent text, loss text,
    problem text)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now   timestamptz := faultline.clock_now();
    claims_max bigint := least(in_jobs_max, 100);
    check_ats  timestamptz[];
    claims     uuid[];
    taken      uuid[];
    taken_by   uuid[];
    rows       faultline.jobs[];
    troubled   uuid[] := '{}';
    sizes      bigint[];
    is_full    boolean;
    one        faultline.jobs;
    said       text;
BEGIN
    IF coalesce(in_jobs_max, 0) < 1 THEN
        RAISE EXCEPTION 'a sweep is over 1 job at least' USING ERRCODE = 'FL400';
    END IF;
    SELECT array_agg(ripe.check_at), array_agg(ripe.lease_id), array_agg(ripe.size) INTO check_ats, claims, sizes
      FROM (SELECT g.check_at, g.lease_id, cardinality(g.job_ids) AS size
              FROM faultline.grants g
             WHERE g.bucket = in_bucket AND g.check_at <= time_now
             ORDER BY g.check_at, g.lease_id
             LIMIT claims_max
               FOR UPDATE SKIP LOCKED) AS ripe;
    IF claims IS NULL THEN
        more := false;
        RETURN NEXT;
        RETURN;
    END IF;
    -- As many as have in_jobs_max jobs together, and one at least.
    is_full := cardinality(claims) = claims_max;
    SELECT array_agg(c.check_at), array_agg(c.lease_id), is_full OR count(*) < cardinality(claims)
      INTO check_ats, claims, is_full
      FROM (SELECT r.check_at, r.lease_id, sum(r.size) OVER (ORDER BY r.nr) - r.size AS before
              FROM unnest(check_ats, claims, sizes) WITH ORDINALITY AS r(check_at, lease_id, size, nr)) AS c
     WHERE c.before < in_jobs_max;
    SELECT array_agg(t.id), array_agg(c.lease_id) INTO taken, taken_by
      FROM unnest(check_ats, claims) AS c(check_at, lease_id)
     CROSS JOIN LATERAL (
           SELECT g.job_ids FROM faultline.grants g
            WHERE g.bucket = in_bucket AND g.check_at = c.check_at AND g.lease_id = c.lease_id LIMIT 1) AS g
     CROSS JOIN LATERAL unnest(g.job_ids) AS t(id);
    SELECT array_agg(e.job) INTO rows
      FROM (SELECT j.job
              FROM unnest(taken, taken_by) AS c(id, lease_id)
             CROSS JOIN LATERAL (
                   SELECT t AS job FROM faultline.jobs t
                    WHERE t.bucket = in_bucket AND t.id = c.id AND t.lease_id = c.lease_id
                      AND t.lease_expires_at <= time_now
                      FOR UPDATE SKIP LOCKED) AS j
             LIMIT in_jobs_max) AS e;
    is_full := is_full OR coalesce(cardinality(rows), 0) = in_jobs_max;

    IF rows IS NOT NULL THEN
        BEGIN
            RETURN QUERY
            SELECT is_full, e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at, e.due,
                   e.traceparent, e.loss, NULL::text
              FROM faultline.end_expired(in_bucket, time_now, rows) AS e;
        EXCEPTION WHEN OTHERS THEN
            FOREACH one IN ARRAY rows LOOP
                BEGIN
                    RETURN QUERY
                    SELECT is_full, e.id, e.token, e.worker, e.queue, e.attempt, e.next_state, e.lease_expires_at, e.due,
                           e.traceparent, e.loss, NULL::text
                      FROM faultline.end_expired(in_bucket, time_now, ARRAY[one]) AS e;
                EXCEPTION WHEN OTHERS THEN
                    GET STACKED DIAGNOSTICS said = MESSAGE_TEXT;
                    troubled := troubled || one.id;
                    RETURN QUERY
                    SELECT is_full, one.id, one.token, one.worker, one.queue, one.attempt, one.state, one.lease_expires_at,
                           false, one.traceparent, NULL::text, said;
                END;
            END LOOP;
        END;
    ELSE
        more := is_full;
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
