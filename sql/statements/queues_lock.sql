-- Claims of a queue with a cap take turns: the count of running jobs must not move between counting
-- and claiming. Sent in front of jobs_claim, as a statement of its own, so that the claim's snapshot is
-- taken after the wait. Queues without a cap are not locked.
--
-- $1 bucket  $2 queue
SELECT q.name
  FROM faultline.queues q
 WHERE q.bucket = $1::smallint AND q.name = $2::text AND q.running_max IS NOT NULL
   FOR UPDATE
