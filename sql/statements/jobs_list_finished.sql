-- Finished jobs of all queues, newest first, among all rows of the ledger. A job that was requeued since is live, not
-- finished. jobs_list_live says how a listing answers.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 succeeded or cancelled; NULL: both  $7 looks at most
SELECT l.id, l.queue, l.kind, l.state, l.priority, l.attempt, l.token, l.run_at, l.created_at, l.finished_at,
       NULL::timestamptz AS died_at, l.worker, l.last_error, l.tags, l.looked, matches.found
  FROM (SELECT e.*, row_number() OVER newest AS looked, lead(e.id) OVER newest IS NULL AS last
          FROM (SELECT f.job_id AS id, f.queue, f.kind, f.state::text AS state, f.priority, f.attempt, f.token, f.run_at,
                       f.created_at, f.ended_at AS finished_at, f.worker, f.error AS last_error, f.tags
                  FROM faultline.ledger f
                 WHERE f.bucket = $1::smallint AND f.job_id < $2::uuid
                 ORDER BY f.job_id DESC, f.token DESC
                 LIMIT $7::bigint) AS e
        WINDOW newest AS (ORDER BY e.id DESC, e.token DESC)) AS l
 CROSS JOIN LATERAL (
       SELECT ($4::text IS NULL OR l.queue = $4::text) AND ($5::text IS NULL OR l.kind = $5::text)
              AND CASE WHEN $6::text IS NULL THEN l.state IN ('succeeded', 'cancelled') ELSE l.state = $6::text END
              AND NOT EXISTS (SELECT FROM faultline.ledger newer
                               WHERE newer.bucket = $1::smallint AND newer.job_id = l.id AND newer.token > l.token) AS found
       OFFSET 0) AS matches
 WHERE matches.found OR l.last
 ORDER BY l.id DESC, l.token DESC
 LIMIT $3::bigint
