-- Purges dead jobs past their queue's dead_retention: sql/functions/prune_dead.sql.
--
-- $1 bucket  $2 jobs at most
SELECT faultline.prune_dead($1::smallint, $2::bigint)
