-- All queues with their settings. Every bucket has the same ones, so one bucket is enough. One that was deleted is seen
-- while it has live jobs: what was added at that very moment, or requeued since.
--
-- $1 bucket
SELECT q.name, q.paused, q.running_max, q.lease_ttl_ms, q.attempts_max, q.backoff_base_ms, q.backoff_max_ms,
       q.retention_ms, q.key_retention_ms, q.dead_retention_ms, q.created_at, q.updated_at, q.deleted_at
  FROM faultline.queues q
 WHERE q.bucket = $1::smallint
   AND (q.deleted_at IS NULL
        OR EXISTS (SELECT FROM faultline.jobs j
                    WHERE j.bucket = $1::smallint AND j.queue = q.name AND j.priority >= 0))
 ORDER BY q.name
