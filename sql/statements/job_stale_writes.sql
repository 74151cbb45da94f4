-- The evidence about one job: every write that came too late for it, oldest first.
--
-- $1 bucket  $2 job
SELECT s.id, s.at, s.job_id, s.verb, s.reason::text, s.queue, s.token, s.worker, s.current_token,
       s.current_worker, s.current_state::text, s.lease_expired_at
  FROM faultline.stale_writes s
 WHERE s.bucket = $1::smallint AND s.job_id = $2::uuid
 ORDER BY s.at, s.id
