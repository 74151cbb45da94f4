-- Running jobs that lack a part of their lease, and waiting ones that still have one. A CHECK of the table says that,
-- too; this sees it where the constraint was taken away, or came in NOT VALID with a restored dump. And running jobs
-- without a token, finished ones that are still here, and such as pretend to wait with no token left for a claim.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s, token %s, worker %s, lease %s until %s', j.state, j.token, coalesce(j.worker, 'none'),
                  coalesce(j.lease_mark, 'none'), coalesce(j.lease_expires_at::text, 'never')) AS detail
      FROM faultline.seen_jobs j
     WHERE j.bucket = $1::smallint AND j.queue <> ''
       AND CASE WHEN j.state = 'running'
                THEN NOT j.has_lease OR j.lease_expires_at IS NULL OR j.worker IS NULL OR j.claimed_at IS NULL
                     OR j.token <= 0
                ELSE j.has_lease OR j.lease_expires_at IS NOT NULL OR j.worker IS NOT NULL
                     OR j.claimed_at IS NOT NULL OR j.state NOT IN ('available', 'held', 'dead')
                     OR (j.state = 'available' AND j.token = 9223372036854775807)
           END
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
