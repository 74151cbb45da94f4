-- Which of these jobs exist, live or ended: how a lost answer to a bulk enqueue is resolved.
--
-- $1 bucket  $2 ids
SELECT mine.id
  FROM unnest($2::uuid[]) AS mine(id)
 WHERE EXISTS (SELECT FROM faultline.jobs j WHERE j.bucket = $1::smallint AND j.id = mine.id)
    OR EXISTS (SELECT FROM faultline.ledger l WHERE l.bucket = $1::smallint AND l.job_id = mine.id)
