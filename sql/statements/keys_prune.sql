-- Retires idempotency keys whose time is over, in batches; two that prune at once pass over each other's.
--
-- $1 bucket  $2 keys at most
WITH old AS MATERIALIZED (
    SELECT k.queue, k.key FROM faultline.idempotency_keys k
     WHERE k.bucket = $1::smallint AND k.expires_at <= faultline.clock()
     ORDER BY k.expires_at
     LIMIT $2::bigint
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM faultline.idempotency_keys k
     USING old
     WHERE k.bucket = $1::smallint AND k.queue = old.queue AND k.key = old.key
    RETURNING 1
)
SELECT count(*) FROM gone
