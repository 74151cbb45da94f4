-- Who runs what: the running jobs by worker, with the lease that runs out first. Found through the claims that hold
-- them: a million waiting jobs are not walked over.
--
-- $1 bucket  $2 workers at most, those whose lease runs out first before the others
SELECT j.worker, count(*) AS running, array_agg(DISTINCT j.queue) AS queues, min(j.claimed_at) AS oldest_claim,
       min(j.lease_expires_at) AS first_expiry
  FROM faultline.seen_grants g
 CROSS JOIN LATERAL unnest(g.job_ids) AS taken(id)
 CROSS JOIN LATERAL (
       SELECT t.worker, t.queue, t.claimed_at, t.lease_expires_at FROM faultline.seen_jobs t
        WHERE t.bucket = $1::smallint AND t.id = taken.id AND t.lease_mark = g.lease_mark LIMIT 1) AS j
 WHERE g.bucket = $1::smallint
 GROUP BY j.worker
 ORDER BY min(j.lease_expires_at), j.worker
 LIMIT $2::bigint
