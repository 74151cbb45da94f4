-- Waits for a retirement of these finished jobs that is under way, and keeps others from beginning one. Runs in
-- front of jobs_requeue and jobs_requeue_finished, which then see what is left to bring back.
--
-- $1 bucket  $2 jobs
SELECT faultline.hold_finished($1::smallint, $2::uuid[])
