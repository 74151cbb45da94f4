-- Leases that last longer than their job may run.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('claimed at %s for %s ms at most, and its lease ends at %s', j.claimed_at, j.run_max_ms,
                  j.lease_expires_at) AS detail
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.state = 'running' AND j.queue <> ''
       AND j.lease_expires_at > j.claimed_at + j.run_max_ms * interval '1 millisecond'
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
