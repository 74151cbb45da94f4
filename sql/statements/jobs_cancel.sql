-- Cancels jobs: sql/functions/cancel_jobs.sql.
--
-- $1 bucket  $2 jobs  $3 who  $4 reason  $5 call
SELECT * FROM faultline.cancel_jobs($1::smallint, $2::uuid[], $3::text, $4::text, $5::uuid)
