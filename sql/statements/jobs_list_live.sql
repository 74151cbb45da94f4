-- Live jobs, newest first, in pages: each page begins after the last id of the previous one.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 state as shown; NULL: any
SELECT j.id, j.queue, j.kind, faultline.shown_state(j.state, j.run_at)::text AS state, j.priority, j.attempt, j.token, j.run_at,
       j.created_at, NULL::timestamptz AS finished_at, j.worker, j.last_error
  FROM faultline.jobs j
 WHERE j.bucket = $1::smallint AND j.id < $2::uuid
   AND j.queue <> ''
   AND ($4::text IS NULL OR j.queue = $4::text)
   AND ($5::text IS NULL OR j.kind = $5::text)
   AND ($6::text IS NULL OR faultline.shown_state(j.state, j.run_at) = $6::text)
 ORDER BY j.id DESC
 LIMIT $3::bigint
