-- Keeps the counts cheap to read: sql/functions/fold_tallies.sql.
--
-- $1 bucket  $2 delayed jobs to look at, at most  $3 differences to fold, at most
SELECT faultline.fold_tallies($1::smallint, $2::bigint, $3::bigint)
