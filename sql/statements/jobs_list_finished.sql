-- Finished jobs of all queues, newest first. A job that was requeued since is live, not finished.
--
-- $1 bucket  $2 ids below  $3 rows at most  $4 queue  $5 kind  $6 succeeded or cancelled; NULL: both
SELECT l.job_id AS id, l.queue, l.kind, l.state::text, l.priority, l.attempt, l.token, l.run_at, l.created_at,
       l.ended_at AS finished_at, l.worker, l.error AS last_error
  FROM faultline.ledger l
 WHERE l.bucket = $1::smallint AND l.job_id < $2::uuid
   AND l.state IN ('succeeded', 'cancelled')
   AND ($4::text IS NULL OR l.queue = $4::text)
   AND ($5::text IS NULL OR l.kind = $5::text)
   AND ($6::text IS NULL OR l.state::text = $6::text)
   AND NOT EXISTS (SELECT FROM faultline.ledger newer
                    WHERE newer.bucket = $1::smallint AND newer.job_id = l.job_id AND newer.token > l.token)
 ORDER BY l.job_id DESC
 LIMIT $3::bigint
