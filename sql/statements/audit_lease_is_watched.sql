-- Running jobs that no claim's row in `grants` names in time: no watchdog would ever look at them, and after a crash
-- of their worker they would run for ever.
--
-- Costs one walk over the live jobs, and one over the claims, which are few.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('no watchdog will look at the lease of worker %s, which ends at %s', j.worker,
                  j.lease_expires_at) AS detail
      FROM faultline.seen_jobs j
     WHERE j.bucket = $1::smallint AND j.state = 'running' AND j.queue <> ''
       AND NOT EXISTS (SELECT FROM faultline.seen_grants g
                       CROSS JOIN LATERAL unnest(g.job_ids) AS taken(id)
                        WHERE g.bucket = $1::smallint AND g.lease_mark = j.lease_mark AND taken.id = j.id
                          AND g.check_at <= j.lease_expires_at)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
