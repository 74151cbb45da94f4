-- Live jobs, newest first, in pages. There is no index for what is asked for, so jobs are looked at one after another, as
-- many as the caller allows.
--
-- Every listing answers alike: the jobs that were `found`, each with how many had been `looked` at when it was; and, unless
-- the page was full before, the last one that was looked at, which is found or not. A page that ends there goes on after it,
-- if as many were looked at as was allowed. Rows are numbered as they come, and no more are read than the page needs.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 state as shown; NULL: any  $7 looks at most
SELECT l.id, l.queue, l.kind, l.shown AS state, l.priority, l.attempt, l.token, l.run_at, l.created_at,
       NULL::timestamptz AS finished_at, l.died_at, l.worker, l.last_error, l.tags, l.looked, l.found
  FROM (SELECT j.*, row_number() OVER newest AS looked, lead(j.id) OVER newest IS NULL AS last,
               ($4::text IS NULL OR j.queue = $4::text) AND ($5::text IS NULL OR j.kind = $5::text)
               AND ($6::text IS NULL OR j.shown = $6::text) AS found
          FROM (SELECT f.id, f.queue, f.kind, faultline.shown_state(f.state, f.run_at)::text AS shown, f.priority,
                       f.attempt, f.token, f.run_at, f.created_at, f.died_at, f.worker, f.last_error, f.tags
                  FROM faultline.jobs f
                 WHERE f.bucket = $1::smallint AND f.id < $2::uuid AND f.queue <> ''
                 ORDER BY f.id DESC
                 LIMIT $7::bigint) AS j
        WINDOW newest AS (ORDER BY j.id DESC)) AS l
 WHERE l.found OR l.last
 ORDER BY l.id DESC
 LIMIT $3::bigint
