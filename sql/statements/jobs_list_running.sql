-- The running jobs, found through the claims that hold them: a million waiting jobs are not walked over.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind
SELECT j.id, j.queue, j.kind, j.state::text, j.priority, j.attempt, j.token, j.run_at, j.created_at,
       NULL::timestamptz AS finished_at, j.worker, j.last_error
  FROM faultline.grants g
 CROSS JOIN LATERAL unnest(g.job_ids) AS taken(id)
 CROSS JOIN LATERAL (
       SELECT * FROM faultline.jobs t
        WHERE t.bucket = $1::smallint AND t.id = taken.id AND t.lease_id = g.lease_id LIMIT 1) AS j
 WHERE g.bucket = $1::smallint AND taken.id < $2::uuid
   AND ($4::text IS NULL OR j.queue = $4::text)
   AND ($5::text IS NULL OR j.kind = $5::text)
 ORDER BY j.id DESC
 LIMIT $3::bigint
