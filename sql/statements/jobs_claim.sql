-- Takes due jobs of one queue and grants their leases. Nobody can ever hold the same job twice:
--
--   * `due` picks rows that are available and locks them. SKIP LOCKED passes over a row that another
--     claim has in hand, and a row that another claim finished with while we came is read again in
--     its newest version, found to be running, and dropped.
--   * The same statement turns exactly these rows into running ones with a new token, this claim's
--     lease id and an expiry. There is no moment in which a row is taken and has no lease.
--   * `due` is MATERIALIZED and holds the only LIMIT. As an IN (…) subquery the planner may run it
--     more than once and lock more rows than were asked for.
--
-- Each priority is looked at by a short walk of jobs_due that begins after the last job found there
-- ($7, $8) and ends at the clock: neither scheduled jobs nor the dead index entries of long ago are
-- walked over. The store looks from the beginning (-infinity) now and then, for late commits.
--
-- The update names no indexed column, so it is heap-only: a claim writes to no index of jobs.
--
-- $1 bucket  $2 queue  $3 worker  $4 lease id  $5 jobs at most
-- $6 priorities, first to last  $7, $8 (run_at, id) after which to look, per priority
-- $9 the caller holds the queue's row lock (queues_lock), so that a cap can be counted
WITH room AS MATERIALIZED (
    SELECT q.paused, q.running_max IS NOT NULL AS capped, q.lease_ttl_ms, q.attempts_max,
           CASE WHEN q.paused THEN 0
                WHEN q.running_max IS NULL THEN $5::bigint
                WHEN NOT $9::boolean THEN 0
                ELSE least($5::bigint, greatest(0, q.running_max - (
                         SELECT coalesce(sum(t.running), 0) FROM faultline.tallies t
                          WHERE t.bucket = $1::smallint AND t.queue = $2::text)))
           END AS jobs_max
      FROM faultline.queues q
     WHERE q.bucket = $1::smallint AND q.name = $2::text
), due AS MATERIALIZED (
    SELECT found.id, room.lease_ttl_ms, room.attempts_max
      FROM room
     CROSS JOIN unnest($6::smallint[], $7::timestamptz[], $8::uuid[]) AS look(priority, since, since_id)
     CROSS JOIN LATERAL (
           SELECT j.id
             FROM faultline.jobs j
            WHERE j.bucket = $1::smallint AND j.queue = $2::text AND j.priority = look.priority AND j.priority >= 0
              AND (j.run_at, j.id) > (look.since, look.since_id)
              AND j.run_at <= faultline.clock()
              AND j.state = 'available'
            ORDER BY j.run_at, j.id
            LIMIT $5::bigint
              FOR UPDATE SKIP LOCKED) AS found
     LIMIT (SELECT jobs_max FROM room)
), claimed AS (
    UPDATE faultline.jobs j
       SET state = 'running',
           token = j.token + 1,
           attempt = j.attempt + 1,
           worker = $3::text,
           lease_id = $4::uuid,
           claimed_at = faultline.clock(),
           -- A lease never outlives the job's maximum run time.
           lease_expires_at = faultline.clock()
               + least(coalesce(j.lease_ttl_ms, due.lease_ttl_ms), j.run_max_ms) * interval '1 millisecond',
           progress = NULL,
           progress_note = NULL
      FROM due
     WHERE j.bucket = $1::smallint AND j.id = due.id
    RETURNING j.id, j.lease_expires_at, j.token, j.attempt, coalesce(j.attempts_max, due.attempts_max) AS attempts_max,
              j.priority, j.run_at, j.created_at, coalesce(j.lease_ttl_ms, due.lease_ttl_ms) AS lease_ttl_ms,
              j.run_max_ms, j.requeues, j.encoding::text, j.delivery::text, j.kind,
              j.payload, j.tags, j.traceparent
), granted AS (
    INSERT INTO faultline.grants (bucket, check_at, lease_id, job_ids)
    SELECT $1::smallint, min(c.lease_expires_at), $4::uuid, array_agg(c.id) FROM claimed c HAVING count(*) > 0
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available, running)
    SELECT $1::smallint, $2::text, -count(*), count(*) FROM claimed HAVING count(*) > 0
)
-- One row without a job tells a paused, capped or empty queue from one that does not exist.
SELECT room.paused, room.capped, c.* FROM room LEFT JOIN claimed c ON true
