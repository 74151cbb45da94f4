-- Retires finished jobs past their queue's retention: sql/functions/prune_jobs.sql.
--
-- $1 bucket  $2 jobs at most
SELECT faultline.prune_jobs($1::smallint, $2::bigint)
