-- Jobs that were tried more often than they may be. The limit of a queue counts only if the queue has not been changed
-- since the job was made (or in the minute before): one that is lowered leaves jobs above it, and that is in order.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, j.id::text AS subject,
       format('it is in attempt %s of %s', j.attempt, coalesce(j.attempts_max, q.attempts_max)) AS detail
  FROM faultline.jobs j
  JOIN faultline.queues q ON q.name = j.queue
 WHERE j.bucket = $1::smallint AND q.bucket = $1::smallint
   AND (j.attempt < 0 OR j.attempt > coalesce(
            j.attempts_max,
            CASE WHEN q.updated_at < j.created_at - interval '1 minute' THEN q.attempts_max END))
 ORDER BY j.id
 LIMIT $2::bigint
