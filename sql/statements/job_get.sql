-- Jobs as they are now: live ones, and finished ones from the ledger.
--
-- $1 bucket  $2 jobs
SELECT v.id, v.queue, v.kind, v.state::text, v.priority, v.attempt, v.attempts_max, v.token, v.run_at, v.created_at,
       v.claimed_at, v.lease_expires_at, v.finished_at, v.died_at, v.worker, v.delivery::text, v.encoding::text,
       v.payload, v.result, v.last_error, v.progress, v.progress_note, v.cancel_requested_at, v.cancel_reason,
       v.idempotency_key, v.tags, v.lease_ttl_ms, v.run_max_ms, v.backoff_base_ms,
       v.backoff_max_ms, v.requeues, v.traceparent
  FROM unnest($2::uuid[]) AS mine(id)
 CROSS JOIN LATERAL (
       SELECT j.id, j.queue, j.kind, faultline.shown_state(j.state, j.run_at) AS state, j.priority, j.attempt,
              j.attempts_max, j.token, j.run_at, j.created_at, j.claimed_at, j.lease_expires_at,
              NULL::timestamptz AS finished_at, j.died_at, j.worker, j.delivery, j.encoding, j.payload, NULL::bytea AS result,
              j.last_error, j.progress, j.progress_note, j.cancel_requested_at, j.cancel_reason,
              j.idempotency_key, j.tags, j.lease_ttl_ms, j.run_max_ms, j.backoff_base_ms, j.backoff_max_ms, j.requeues, j.traceparent
         FROM faultline.jobs j
        WHERE j.bucket = $1::smallint AND j.id = mine.id AND j.queue <> ''
       UNION ALL
       SELECT * FROM (
              SELECT l.job_id, l.queue, l.kind, l.state::text, l.priority, l.attempt, l.attempts_max, l.token,
                     l.run_at, l.created_at, l.started_at, NULL::timestamptz, l.ended_at, NULL::timestamptz, l.worker, l.delivery,
                     l.encoding, l.payload, l.result, l.error, NULL::float8, NULL::text, NULL::timestamptz,
                     NULL::text, l.idempotency_key, l.tags, l.lease_ttl_ms, l.run_max_ms, l.backoff_base_ms, l.backoff_max_ms, l.requeues,
                     l.traceparent
                FROM faultline.ledger l
               WHERE l.bucket = $1::smallint AND l.job_id = mine.id
               ORDER BY l.token DESC LIMIT 1) AS last
        WHERE last.state IN ('succeeded', 'cancelled')) AS v
