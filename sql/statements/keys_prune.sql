-- Retires idempotency keys that have outlived their jobs: sql/functions/prune_keys.sql.
--
-- $1 bucket  $2 keys at most
SELECT faultline.prune_keys($1::smallint, $2::bigint)
