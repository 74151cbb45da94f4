-- Puts dead, held and finished jobs back: sql/functions/requeue_jobs.sql.
--
-- $1 bucket  $2 jobs  $3 who  $4 call
SELECT * FROM faultline.requeue_jobs($1::smallint, $2::uuid[], $3::text, $4::uuid)
