-- Makes a queue or changes its settings; NULL leaves a setting as it is (or at its default).
--
-- $1 bucket  $2 name  $3 paused  $4 running_max, -1: no cap  $5 lease_ttl_ms  $6 attempts_max
-- $7 backoff_base_ms  $8 backoff_max_ms  $9 retention_ms  $10 key_retention_ms
INSERT INTO faultline.queues AS q (
       bucket, name, paused, running_max, lease_ttl_ms, attempts_max, backoff_base_ms, backoff_max_ms,
       retention_ms, key_retention_ms)
SELECT $1::smallint, $2::text, coalesce($3::boolean, false), nullif($4::integer, -1),
       coalesce($5::integer, 30000), coalesce($6::integer, 20), coalesce($7::integer, 1000),
       coalesce($8::integer, 3600000), coalesce($9::bigint, 604800000), coalesce($10::bigint, 86400000)
ON CONFLICT (bucket, name) DO UPDATE
   SET paused = coalesce($3::boolean, q.paused),
       running_max = CASE WHEN $4::integer IS NULL THEN q.running_max ELSE nullif($4::integer, -1) END,
       lease_ttl_ms = coalesce($5::integer, q.lease_ttl_ms),
       attempts_max = coalesce($6::integer, q.attempts_max),
       backoff_base_ms = coalesce($7::integer, q.backoff_base_ms),
       backoff_max_ms = coalesce($8::integer, q.backoff_max_ms),
       retention_ms = coalesce($9::bigint, q.retention_ms),
       key_retention_ms = coalesce($10::bigint, q.key_retention_ms),
       updated_at = faultline.clock()
 WHERE q.bucket = $1::smallint
