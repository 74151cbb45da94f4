-- All queues with their settings. Every bucket has the same ones, so one bucket is enough.
--
-- $1 bucket
SELECT q.name, q.paused, q.running_max, q.lease_ttl_ms, q.attempts_max, q.backoff_base_ms, q.backoff_max_ms,
       q.retention_ms, q.key_retention_ms, q.dead_retention_ms, q.created_at, q.updated_at
  FROM faultline.queues q
 WHERE q.bucket = $1::smallint
 ORDER BY q.name
