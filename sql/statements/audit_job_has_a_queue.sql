-- Live jobs in a queue that is not there: nobody can claim them.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
WITH wrong AS MATERIALIZED (
    SELECT j.id::text AS subject, format('there is no queue %s', j.queue) AS detail
      FROM faultline.jobs j
     WHERE j.bucket = $1::smallint AND j.queue <> ''
       AND NOT EXISTS (SELECT FROM faultline.queues q WHERE q.bucket = $1::smallint AND q.name = j.queue)
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
