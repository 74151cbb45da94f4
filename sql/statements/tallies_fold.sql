-- Folds the differences of the counts together: sql/functions/fold_tallies.sql.
--
-- $1 bucket
SELECT faultline.fold_tallies($1::smallint)
