-- The evidence, newest first, in pages. The writes of one batch share their moment, and the next page begins
-- before the last moment of this one: so the last moment comes whole, even if that is a few rows more.
--
-- $1 bucket  $2 rows  $3 older than
SELECT s.id, s.at, s.job_id, s.verb, s.reason::text, s.queue, s.token, s.worker, s.current_token,
       s.current_worker, s.current_state::text, s.lease_expired_at
  FROM faultline.stale_writes s
 WHERE s.bucket = $1::smallint AND s.at < $3::timestamptz AND s.at > '-infinity'
 ORDER BY s.at DESC
 FETCH FIRST ($2::bigint) ROWS WITH TIES
