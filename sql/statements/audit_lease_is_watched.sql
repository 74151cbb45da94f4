-- Running jobs that no claim's row in `grants` names in time: no watchdog would ever look at them, and after a crash
-- of their worker they would run for ever.
--
-- Costs one walk over the live jobs, and one over the claims, which are few.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, j.id::text AS subject,
       format('no watchdog will look at lease %s of worker %s, which ends at %s', j.lease_id, j.worker,
              j.lease_expires_at) AS detail
  FROM faultline.jobs j
 WHERE j.bucket = $1::smallint AND j.state = 'running' AND j.queue <> ''
   AND NOT EXISTS (SELECT FROM faultline.grants g
                    WHERE g.bucket = $1::smallint AND g.lease_id = j.lease_id
                      AND g.check_at <= j.lease_expires_at AND j.id = ANY (g.job_ids))
 ORDER BY j.id
 LIMIT $2::bigint
