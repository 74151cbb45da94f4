-- Ends dead jobs for good: sql/functions/purge_jobs.sql.
--
-- $1 bucket  $2 jobs  $3 who  $4 call
SELECT * FROM faultline.purge_jobs($1::smallint, $2::uuid[], $3::text, $4::uuid)
