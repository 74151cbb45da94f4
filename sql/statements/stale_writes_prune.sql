-- Retires evidence that is older than its queue's retention: sql/functions/prune_stale_writes.sql.
--
-- $1 bucket  $2 rows at most
SELECT faultline.prune_stale_writes($1::smallint, $2::bigint)
