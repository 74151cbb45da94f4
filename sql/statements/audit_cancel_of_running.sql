-- Jobs that nobody runs and that are marked to be cancelled: a waiting job is cancelled at once, and no later claim
-- may find the mark.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is %s, and its cancellation was asked for at %s', j.state, j.cancel_requested_at) AS detail
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.cancel_requested_at IS NOT NULL AND j.state <> 'running' AND j.queue <> ''
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
