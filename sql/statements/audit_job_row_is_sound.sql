-- Live jobs that say what cannot be: a priority or a moment at which nobody looks, a death without a date, a lease that ends
-- before it began, options out of their bounds. The first thing that is wrong with each.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT p.subject, p.detail
      FROM (SELECT j.id::text AS subject,
                   CASE
                       WHEN j.priority NOT BETWEEN 0 AND 9 THEN format('its priority is %s, and nobody looks there', j.priority)
                       WHEN j.state IN ('available', 'running') AND NOT isfinite(j.run_at)
                            THEN format('it is %s, and may run at %s', j.state, j.run_at)
                       WHEN j.state IN ('held', 'dead') AND j.run_at <> 'infinity'
                            THEN format('it is %s, and may run at %s', j.state, j.run_at)
                       WHEN j.state = 'dead' AND j.died_at IS NULL OR j.state <> 'dead' AND j.died_at IS NOT NULL
                            THEN format('it is %s, and died at %s', j.state, coalesce(j.died_at::text, 'no time'))
                       WHEN j.token < 0 THEN format('its token is %s', j.token)
                       WHEN j.token = 0 AND j.state <> 'available' THEN format('it is %s, and was never claimed', j.state)
                       WHEN j.delayed AND j.state IN ('held', 'dead') THEN format('it is %s, and marked as delayed', j.state)
                       WHEN (j.state = 'running') <> (j.granted_ttl_ms IS NOT NULL) OR j.granted_ttl_ms NOT BETWEEN 100 AND 86400000
                            THEN format('it is %s, with a TTL of %s ms', j.state, coalesce(j.granted_ttl_ms::text, 'no'))
                       WHEN j.lease_expires_at <= j.claimed_at
                            OR j.lease_expires_at > faultline.clock() + interval '1 year' OR NOT isfinite(j.claimed_at)
                            THEN format('its lease lasts from %s to %s', j.claimed_at, j.lease_expires_at)
                       WHEN j.cancel_requested_at IS NULL AND num_nonnulls(j.cancel_reason, j.cancel_call_id) > 0
                            OR NOT isfinite(j.cancel_requested_at)
                            THEN format('its cancellation has a reason or a caller, and was asked for at %s',
                                        coalesce(j.cancel_requested_at::text, 'no time'))
                       WHEN NOT isfinite(j.created_at) THEN format('it was made at %s', j.created_at)
                       WHEN octet_length(j.kind) NOT BETWEEN 1 AND 128 THEN format('its kind has %s bytes', octet_length(j.kind))
                       WHEN j.attempts_max NOT BETWEEN 1 AND 1000000 THEN format('its attempts_max is %s', j.attempts_max)
                       WHEN j.lease_ttl_ms NOT BETWEEN 100 AND 86400000 THEN format('its lease_ttl_ms is %s', j.lease_ttl_ms)
                       WHEN j.run_max_ms NOT BETWEEN 100 AND 31536000000 THEN format('its run_max_ms is %s', j.run_max_ms)
                       WHEN j.backoff_base_ms NOT BETWEEN 0 AND 86400000
                            THEN format('its backoff_base_ms is %s', j.backoff_base_ms)
                       WHEN j.backoff_max_ms NOT BETWEEN 0 AND 604800000 THEN format('its backoff_max_ms is %s', j.backoff_max_ms)
                       WHEN j.progress NOT BETWEEN 0 AND 1 THEN format('its progress is %s', j.progress)
                       WHEN j.encoding = 'json' AND octet_length(j.payload) = 0 THEN 'its payload is empty, which is no JSON'
                       WHEN j.traceparent !~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' THEN 'its traceparent is none'
                   END AS detail
              FROM faultline.jobs j
             WHERE j.bucket = $1::smallint AND j.queue <> '') AS p
     WHERE p.detail IS NOT NULL
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
