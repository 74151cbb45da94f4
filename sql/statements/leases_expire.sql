-- The watchdog's sweep: sql/functions/expire_leases.sql.
--
-- $1 bucket  $2 jobs at most
SELECT * FROM faultline.expire_leases($1::smallint, $2::bigint)
