-- Queues that run more jobs than their cap allows. A cap that is lowered leaves too many running for a while, and whether
-- a claim came before or after that no clock can tell, since it may have been set back; so a queue counts only if it has the
-- cap that it was made with.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT q.name AS subject,
           format('%s jobs run, and its cap is %s', r.running, q.running_max) AS detail
      FROM faultline.queues q
      JOIN (SELECT j.queue, count(*) AS running
              FROM faultline.jobs j
             WHERE j.bucket = $1::smallint AND j.state = 'running'
             GROUP BY j.queue) AS r ON r.queue = q.name
     WHERE q.bucket = $1::smallint AND r.running > q.running_max AND q.updated_at = q.created_at
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
