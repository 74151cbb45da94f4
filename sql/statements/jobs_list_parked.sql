-- Dead or held jobs of one queue. They stand at the end of jobs_due, with run_at infinity, so a million
-- waiting ones are not walked over.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 dead or held
SELECT j.id, j.queue, j.kind, j.state::text, j.priority, j.attempt, j.token, j.run_at, j.created_at,
       NULL::timestamptz AS finished_at, j.worker, j.last_error
  FROM generate_series(0, 9) AS p(priority)
 CROSS JOIN LATERAL (
       SELECT * FROM faultline.jobs f
        WHERE f.bucket = $1::smallint AND f.queue = $4::text AND f.priority = p.priority::smallint AND f.priority >= 0
          AND f.run_at = 'infinity' AND f.id < $2::uuid AND f.state::text = $6::text
          AND ($5::text IS NULL OR f.kind = $5::text)
        ORDER BY f.id DESC
        LIMIT $3::bigint) AS j
 ORDER BY j.id DESC
 LIMIT $3::bigint
