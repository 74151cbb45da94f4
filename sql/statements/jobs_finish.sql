-- Ends attempts that finish their job: success, or a cancellation that the worker carries out. The job
-- leaves `jobs` and stands, whole, in the ledger: one statement, so both happen or neither.
--
-- The fence is in the DELETE: the row goes only if it still carries this token and this lease id and the
-- lease has not run out. A row that is locked by somebody is waited for and then read again in its
-- newest version; the time is judged again at the end. What does not come back was refused:
-- leases_judge says why and keeps the evidence. A job that is to be cancelled cannot succeed any more.
--
-- Rows are found by primary key alone. That a token is above 0 and below the last one says nothing about
-- jobs and much to the planner: that few rows come from the caller, each to be looked up.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 succeeded (else cancelled)
-- $6 results, NULL: there are none  $7 errors, NULL: there are none  $8 whether they are sent again
WITH ended AS (
    DELETE FROM faultline.jobs j
     USING unnest($2::uuid[], $3::bigint[], $4::uuid[], $6::bytea[], $7::text[])
           AS mine(id, token, lease_id, result, error)
     WHERE mine.token > 0 AND mine.token <= 9223372036854775807
       AND j.bucket = $1::smallint AND j.id = mine.id
       AND j.token = mine.token AND j.lease_id = mine.lease_id
       AND j.lease_expires_at > faultline.clock()
       AND NOT ($5::boolean AND j.cancel_requested_at IS NOT NULL)
    -- What is read most often comes first: the rows below are unpacked from the left.
    RETURNING j.id, j.lease_expires_at, j.queue, j.token, j.lease_id, j.attempt, j.requeues, j.worker, j.claimed_at,
              mine.error, j.cancel_reason, mine.result, /*carried j*/, j.run_at, j.encoding, j.payload
), booked AS (
    INSERT INTO faultline.ledger (
           bucket, job_id, token, lease_id, attempt, outcome, state, requeues, queue, worker, started_at,
           error, result, /*carried*/, run_at, encoding, payload, resent)
    SELECT $1::smallint, e.id, e.token, e.lease_id, e.attempt,
           CASE WHEN $5::boolean THEN 'succeeded'::faultline.outcome ELSE 'cancelled' END,
           CASE WHEN $5::boolean THEN 'succeeded'::faultline.job_state ELSE 'cancelled' END,
           e.requeues, e.queue, e.worker, e.claimed_at, coalesce(e.error, e.cancel_reason), e.result,
           /*carried e*/, e.run_at, e.encoding, e.payload, nullif($8::boolean, false)
      FROM ended e
), keyed AS (
    -- The idempotency key outlives its job by the queue's setting, counted from now.
    INSERT INTO faultline.idempotency_keys AS old (bucket, queue, key, job_id, fingerprint, expires_at)
    SELECT $1::smallint, k.queue, k.key, k.job_id, k.fingerprint,
           faultline.clock() + k.key_retention_ms * interval '1 millisecond'
      FROM ended e
     CROSS JOIN LATERAL (
           SELECT i.queue, i.key, i.job_id, i.fingerprint, q.key_retention_ms
             FROM faultline.idempotency_keys i
            CROSS JOIN faultline.queues q
            WHERE i.bucket = $1::smallint AND i.queue = e.queue AND i.key = e.idempotency_key
              AND i.job_id = e.id AND q.bucket = $1::smallint AND q.name = e.queue
            LIMIT 1) AS k
     WHERE e.idempotency_key IS NOT NULL
    ON CONFLICT (bucket, queue, key) DO UPDATE SET expires_at = EXCLUDED.expires_at
     WHERE old.bucket = $1::smallint
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, running, succeeded, cancelled)
    SELECT $1::smallint, e.queue, -count(*), count(*) FILTER (WHERE $5::boolean),
           count(*) FILTER (WHERE NOT $5::boolean)
      FROM ended e GROUP BY e.queue
)
SELECT e.id, (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM ended first) FROM ended e
