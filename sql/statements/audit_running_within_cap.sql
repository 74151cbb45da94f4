-- Queues that run more jobs than their cap allows. A cap that is lowered leaves too many running for a while, and a
-- claim that was under way when it was set is not counted by it; so a queue counts only if one of its running jobs was
-- claimed more than a minute after the last change of its settings. At that claim all were counted.
--
-- Costs one walk over the live jobs.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, q.name AS subject,
       format('%s jobs run, and its cap is %s', r.running, q.running_max) AS detail
  FROM faultline.queues q
 CROSS JOIN LATERAL (
       SELECT count(*) AS running, max(j.claimed_at) AS last_claim
         FROM faultline.jobs j
        WHERE j.bucket = $1::smallint AND j.queue = q.name AND j.state = 'running') AS r
 WHERE q.bucket = $1::smallint AND r.running > q.running_max
   AND r.last_claim > q.updated_at + interval '1 minute'
 ORDER BY q.name
 LIMIT $2::bigint
