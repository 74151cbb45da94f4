-- What is wrong with a job that enqueue or enqueue_many was given, in words for its producer, or NULL.
CREATE OR REPLACE FUNCTION faultline.submission_problem(
    kind text, payload jsonb, payload_bytes bytea, payload_bytes_max integer, priority integer, run_at timestamptz,
    delay interval, attempts_max integer, lease_ttl interval, run_max interval, backoff_base interval,
    backoff_max interval, delivery text, tags text[], traceparent text, idempotency_key text)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT CASE
        WHEN payload IS NOT NULL AND payload_bytes IS NOT NULL THEN 'give payload or payload_bytes, not both'
        WHEN delivery IS NULL OR delivery NOT IN ('at_least_once', 'at_most_once', 'hold') THEN
            'delivery is at_least_once, at_most_once or hold'
        ELSE coalesce(
            faultline.kind_problem(kind),
            faultline.job_problem(
                coalesce(payload_bytes, convert_to(payload::text, 'UTF8')), payload_bytes_max,
                -- One that does not fit is out of its range, too; so is none at all.
                least(greatest(priority, -1), 10)::smallint),
            faultline.options_problem(
                run_at, faultline.to_ms(delay), attempts_max, faultline.to_ms(lease_ttl), faultline.to_ms(run_max),
                faultline.to_ms(backoff_base), faultline.to_ms(backoff_max), tags, traceparent, idempotency_key))
    END
    $$;
