-- Jobs that were tried more often than they may be. The limit of a queue counts only if the queue is as it was made: one
-- that is lowered leaves jobs above it, and whether it was lowered before or after the job was added no clock can tell, since
-- it may have been set back.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject,
           format('it is in attempt %s of %s', j.attempt, coalesce(j.attempts_max, q.attempts_max)) AS detail
      FROM faultline.jobs j
      JOIN faultline.queues q ON q.name = j.queue
     WHERE j.bucket = $1::smallint AND q.bucket = $1::smallint AND j.attempt <> 0
       AND (j.attempt < 0 OR j.attempt > coalesce(
                j.attempts_max,
                CASE WHEN q.updated_at = q.created_at THEN q.attempts_max END))
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
