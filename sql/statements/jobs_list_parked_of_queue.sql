-- Dead or held jobs of one queue, by the index that has only those.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 dead or held  $7 looks at most
SELECT l.id, l.queue, l.kind, l.state, l.priority, l.attempt, l.token, l.run_at, l.created_at,
       NULL::timestamptz AS finished_at, l.died_at, l.worker, l.last_error, l.tags, l.looked, l.found
  FROM (SELECT j.*, row_number() OVER newest AS looked, lead(j.id) OVER newest IS NULL AS last,
               ($5::text IS NULL OR j.kind = $5::text) AND j.state = $6::text AS found
          FROM (SELECT f.id, f.queue, f.kind, f.state::text AS state, f.priority, f.attempt, f.token, f.run_at,
                       f.created_at, f.died_at, f.worker, f.last_error, f.tags
                  FROM faultline.jobs f
                 WHERE f.bucket = $1::smallint AND f.id < $2::uuid AND f.run_at = 'infinity' AND f.queue <> ''
                   AND f.queue = $4::text
                 ORDER BY f.id DESC
                 LIMIT $7::bigint) AS j
        WINDOW newest AS (ORDER BY j.id DESC)) AS l
 WHERE l.found OR l.last
 ORDER BY l.id DESC
 LIMIT $3::bigint
