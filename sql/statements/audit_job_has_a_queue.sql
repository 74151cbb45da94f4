-- Live jobs in a queue that is not there: nobody can claim them. And queues that are not there and have finished jobs, by
-- the counters: nothing retires those.
--
-- Costs one walk over the live jobs, and one over the counters.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject, format('there is no queue %s', j.queue) AS detail
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.queue <> ''
       AND NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = $1::smallint AND q.name = j.queue)
    UNION ALL
    SELECT t.queue, format('it has %s finished jobs, and there is no such queue', sum(t.succeeded + t.cancelled))
      FROM faultline.tallies t
     WHERE t.bucket = $1::smallint
       AND NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = $1::smallint AND q.name = t.queue)
     GROUP BY t.queue
    HAVING sum(t.succeeded + t.cancelled) <> 0
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
