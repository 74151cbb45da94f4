-- Queues in which more jobs wait for another attempt than are due or run, with why one of them failed, and how many of the
-- last hundred finished ones ended within ten minutes.
--
-- $1 bucket  $2 jobs that wait for another attempt at least
SELECT q.name, w.retrying, finished.lately, coalesce(sample.last_error, '') AS last_error
  FROM faultline.queues q
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(t.retrying), 0)::bigint AS retrying,
              coalesce(sum(t.available - t.delayed + t.running), 0)::bigint AS busy
         FROM faultline.tallies t
        WHERE t.bucket = $1::smallint AND t.queue = q.name) AS w
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE l.ended_at > faultline.clock() - interval '10 minutes') AS lately
         FROM (SELECT f.ended_at FROM faultline.ledger f
                WHERE f.bucket = $1::smallint AND f.queue = q.name AND f.state IN ('succeeded', 'cancelled')
                ORDER BY f.job_id DESC LIMIT 100) AS l
        WHERE w.retrying >= $2::bigint) AS finished
  -- A look at each priority: the index has the queue's jobs by it, and then by the time of their next attempt.
  LEFT JOIN LATERAL (
       SELECT s.last_error
         FROM generate_series(0, 9) AS p(priority)
        CROSS JOIN LATERAL (
              SELECT j.last_error, j.attempt FROM faultline.jobs j
               WHERE j.bucket = $1::smallint AND j.queue = q.name AND j.priority = p.priority::smallint AND j.priority >= 0
                 AND j.run_at > faultline.clock() AND j.run_at < 'infinity'
               ORDER BY j.run_at LIMIT 100) AS s
        WHERE w.retrying >= $2::bigint AND s.attempt > 0 AND s.last_error IS NOT NULL
        LIMIT 1) AS sample ON true
 WHERE q.bucket = $1::smallint AND w.retrying >= $2::bigint AND w.retrying > w.busy AND w.retrying > finished.lately
 ORDER BY w.retrying DESC, q.name
