-- What is wrong with the options of a new job, in words for its producer, or NULL; none is needed. One expression, as in
-- job_problem.
CREATE OR REPLACE FUNCTION faultline.options_problem(
    run_at timestamptz, delay_ms bigint, attempts_max integer, lease_ttl_ms bigint, run_max_ms bigint,
    backoff_base_ms bigint, backoff_max_ms bigint, tags text[], traceparent text, idempotency_key text)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT coalesce(faultline.tags_problem(tags), CASE
        WHEN run_at IS NOT NULL AND delay_ms IS NOT NULL THEN 'give run_at or delay, not both'
        WHEN run_at NOT BETWEEN '1970-01-01 00:00:00+00' AND '9999-12-31 23:59:59+00' THEN
            'run_at is a moment between the years 1970 and 9999'
        WHEN delay_ms NOT BETWEEN 0 AND 315360000000 THEN 'a delay is 0 to 3650 days'
        WHEN attempts_max NOT BETWEEN 1 AND 1000000 THEN 'attempts_max is 1 to 1000000'
        WHEN lease_ttl_ms NOT BETWEEN 100 AND 86400000 THEN 'lease_ttl is 100 ms to 24 h'
        WHEN run_max_ms NOT BETWEEN 100 AND 31536000000 THEN 'run_max is 100 ms to 365 days'
        WHEN backoff_base_ms NOT BETWEEN 0 AND 86400000 THEN 'backoff_base is 0 to 24 h'
        WHEN backoff_max_ms NOT BETWEEN 0 AND 604800000 THEN 'backoff_max is 0 to 7 days'
        WHEN octet_length(idempotency_key) NOT BETWEEN 1 AND 256 OR idempotency_key ~ '[[:cntrl:]]' THEN
            'an idempotency key has 1 to 256 bytes and no control characters'
        WHEN traceparent !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' OR traceparent ~ '^...0{32}|-0{16}-' THEN
            'a traceparent is 00-TRACE_ID-PARENT_ID-FLAGS, as W3C Trace Context has it'
    END)
    $$;
