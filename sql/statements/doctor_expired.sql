-- Leases that ran out and that no watchdog has ended since, found through the claims that hold them.
--
-- $1 bucket
SELECT count(*) AS expired, coalesce(max(extract(epoch FROM faultline.clock() - j.lease_expires_at)), 0)::float8
           AS oldest_seconds
  FROM faultline.seen_grants g
 CROSS JOIN LATERAL unnest(g.job_ids) AS taken(id)
 CROSS JOIN LATERAL (
       SELECT t.lease_expires_at FROM faultline.seen_jobs t
        WHERE t.bucket = $1::smallint AND t.id = taken.id AND t.lease_mark = g.lease_mark LIMIT 1) AS j
 WHERE g.bucket = $1::smallint AND g.check_at <= faultline.clock() AND j.lease_expires_at <= faultline.clock()
