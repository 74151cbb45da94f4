-- The running jobs, found through the claims that hold them: a million waiting jobs are not walked over. The newest of the
-- ids that were claimed are looked up, one after another: many have ended since. One that two claims name is there twice.
-- jobs_list_live says how a listing answers.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 running  $7 looks at most
SELECT l.taken_id AS id, j.queue, j.kind, j.state::text AS state, j.priority, j.attempt, j.token, j.run_at, j.created_at,
       NULL::timestamptz AS finished_at, j.died_at, j.worker, j.last_error, j.tags, l.looked, j.id IS NOT NULL AS found
  FROM (SELECT c.taken_id, row_number() OVER newest AS looked, lead(c.taken_id) OVER newest IS NULL AS last
          FROM (SELECT taken.id AS taken_id
                  FROM faultline.grants g
                 CROSS JOIN LATERAL unnest(g.job_ids) AS taken(id)
                 WHERE g.bucket = $1::smallint AND taken.id < $2::uuid
                 ORDER BY taken.id DESC
                 LIMIT $7::bigint) AS c
        WINDOW newest AS (ORDER BY c.taken_id DESC)) AS l
  LEFT JOIN LATERAL (
       SELECT t.id, t.queue, t.kind, t.state, t.priority, t.attempt, t.token, t.run_at, t.created_at, t.died_at, t.worker,
              t.last_error, t.tags
         FROM faultline.jobs t
        WHERE t.bucket = $1::smallint AND t.id = l.taken_id AND t.state::text = $6::text
          AND ($4::text IS NULL OR t.queue = $4::text)
          AND ($5::text IS NULL OR t.kind = $5::text)
        LIMIT 1) AS j ON true
 WHERE j.id IS NOT NULL OR l.last
 ORDER BY l.taken_id DESC
 LIMIT $3::bigint
