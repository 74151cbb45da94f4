-- Live jobs of a queue that has few of them: all are taken from jobs_due, which has them in another order, and sorted. One
-- that has more than may be looked at answers with its number of looks and nothing else, and is listed by jobs_list_live:
-- a queue with so many of all jobs is found among them.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 state as shown; NULL: any  $7 looks at most
WITH few AS MATERIALIZED (
    SELECT f.id FROM faultline.jobs f
     WHERE f.bucket = $1::smallint AND f.queue = $4::text AND f.priority >= 0
     ORDER BY f.priority, f.run_at, f.id
     LIMIT $7::bigint + 1
), size AS MATERIALIZED (
    SELECT count(*) AS jobs FROM few
)
SELECT l.id, l.queue, l.kind, l.shown AS state, l.priority, l.attempt, l.token, l.run_at, l.created_at,
       NULL::timestamptz AS finished_at, l.died_at, l.worker, l.last_error, l.tags, s.jobs AS looked, l.id IS NOT NULL AS found
  FROM size s
  LEFT JOIN LATERAL (
       SELECT j.*
         FROM few
        CROSS JOIN LATERAL (
              SELECT t.id, t.queue, t.kind, faultline.shown_state(t.state, t.run_at)::text AS shown, t.priority, t.attempt,
                     t.token, t.run_at, t.created_at, t.died_at, t.worker, t.last_error, t.tags
                FROM faultline.jobs t
               WHERE t.bucket = $1::smallint AND t.id = few.id LIMIT 1) AS j
        WHERE s.jobs <= $7::bigint AND few.id < $2::uuid
          AND ($5::text IS NULL OR j.kind = $5::text) AND ($6::text IS NULL OR j.shown = $6::text)
        ORDER BY j.id DESC
        LIMIT $3::bigint) AS l ON true
 ORDER BY l.id DESC
