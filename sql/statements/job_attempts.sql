-- What became of a job, attempt by attempt: its rows in the ledger, in the order of their tokens.
--
-- $1 bucket  $2 job
SELECT l.token, l.attempt, l.outcome::text, l.state::text, l.worker, l.written_by, l.started_at, l.lease_expires_at, l.ended_at, l.error,
       l.requeues
  FROM faultline.ledger l
 WHERE l.bucket = $1::smallint AND l.job_id = $2::uuid
 ORDER BY l.token
