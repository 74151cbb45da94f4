-- Whether jobs can be written now: sql/functions/check_writable.sql.
--
-- $1 bucket
SELECT faultline.check_writable($1::smallint)
