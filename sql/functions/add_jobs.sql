-- Adds the rows of enqueue_jobs, those that in_mine names if any job has a key, and tells which were not there before.
-- A function of its own, because an INSERT within another statement could not run on an engine that shards.
CREATE OR REPLACE FUNCTION faultline.add_jobs(
    in_bucket smallint, in_now timestamptz, in_mine uuid[], in_ids uuid[], in_queues text[], in_kinds text[],
    in_payloads bytea[], in_encodings faultline.encoding[], in_priorities smallint[], in_run_ats timestamptz[],
    in_delays_ms bigint[], in_attempts_max integer[], in_lease_ttls_ms integer[], in_run_max_ms bigint[],
    in_backoff_base_ms integer[], in_backoff_max_ms integer[], in_deliveries faultline.delivery[], in_tags text[],
    in_traceparents text[], in_keys text[])
RETURNS TABLE (id uuid, queue text)
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    INSERT INTO faultline.jobs (
           bucket, id, queue, kind, payload, encoding, priority, run_at, created_at, attempts_max, lease_ttl_ms,
           run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, idempotency_key)
    SELECT in_bucket, n.id, n.queue, n.kind, n.payload, coalesce(n.encoding, 'json'), n.priority,
           coalesce(n.run_at, in_now + coalesce(n.delay_ms, 0) * interval '1 millisecond'), in_now,
           n.attempts_max, n.lease_ttl_ms, n.run_max_ms, n.backoff_base_ms, n.backoff_max_ms,
           coalesce(n.delivery, 'at_least_once'),
           CASE WHEN n.tags IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(n.tags::jsonb)) END,
           n.traceparent, n.key
      FROM unnest(in_ids, in_queues, in_kinds, in_payloads, in_encodings, in_priorities, in_run_ats, in_delays_ms,
                  in_attempts_max, in_lease_ttls_ms, in_run_max_ms, in_backoff_base_ms, in_backoff_max_ms,
                  in_deliveries, in_tags, in_traceparents, in_keys)
           AS n(id, queue, kind, payload, encoding, priority, run_at, delay_ms, attempts_max, lease_ttl_ms,
                run_max_ms, backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, key)
     WHERE in_keys IS NULL OR n.id = ANY (in_mine)
    ON CONFLICT (bucket, id) DO NOTHING
    RETURNING jobs.id, jobs.queue;
END
$$;
