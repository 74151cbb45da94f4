-- How many jobs are where, per queue, and since when the oldest due one waits. Sums of differences, so a million jobs cost
-- no more than ten.
--
-- Due and scheduled are one stored state, and the clock tells them apart. Scheduled are the jobs that are marked as delayed,
-- which are counted, less those of them whose time has come. The latter are looked at one by one: fold_tallies takes the
-- mark from them, so they are those of the last few seconds while a watchdog runs. Those that wait for another attempt
-- are counted apart: a queue in which everything fails is not one in which everything is planned.
--
-- A queue that was deleted is there while it has live jobs.
--
-- The queues stand among the summands, since a join of so many queues with so many sums would go through all pairs.
-- The oldest due job is looked up in each priority between the first and the last that the queue has: mostly one.
--
-- $1 bucket  $2 queue, NULL: all
SELECT c.queue, c.available AS waiting, c.running, c.held, c.dead, c.succeeded, c.cancelled,
       c.delayed - c.retrying AS scheduled, c.retrying, c.failures, oldest.run_at AS oldest_due_at, faultline.clock() AS now
  FROM (SELECT s.queue, sum(s.available)::bigint AS available, sum(s.delayed)::bigint AS delayed,
               sum(s.retrying)::bigint AS retrying, sum(s.failures)::bigint AS failures, sum(s.running)::bigint AS running,
               sum(s.held)::bigint AS held, sum(s.dead)::bigint AS dead, sum(s.succeeded)::bigint AS succeeded, sum(s.cancelled)::bigint AS cancelled
          FROM (SELECT q.name AS queue, q.deleted_at IS NULL AS known, 0 AS available, 0 AS delayed, 0 AS retrying, 0 AS running, 0 AS held,
                       0 AS dead, 0 AS succeeded, 0 AS cancelled, 0 AS failures
                  FROM faultline.queues q
                 WHERE q.bucket = $1::smallint AND ($2::text IS NULL OR q.name = $2::text)
                UNION ALL
                SELECT t.queue, false, t.available, t.delayed, t.retrying, t.running, t.held, t.dead, t.succeeded, t.cancelled,
                       t.failures
                  FROM faultline.tallies t
                 WHERE t.bucket = $1::smallint AND $2::text IS NULL
                UNION ALL
                SELECT t.queue, false, t.available, t.delayed, t.retrying, t.running, t.held, t.dead, t.succeeded, t.cancelled,
                       t.failures
                  FROM faultline.tallies t
                 WHERE t.bucket = $1::smallint AND t.queue = $2::text
                UNION ALL
                SELECT j.queue, false, 0, -1, CASE WHEN j.attempt > 0 THEN -1 ELSE 0 END, 0, 0, 0, 0, 0, 0
                  FROM faultline.jobs j
                 WHERE j.bucket = $1::smallint AND j.delayed AND j.run_at <= faultline.clock()
                   AND j.state = 'available' AND ($2::text IS NULL OR j.queue = $2::text)) AS s
         GROUP BY s.queue
        HAVING bool_or(s.known) OR sum(s.available + s.running + s.held + s.dead) > 0) AS c
 CROSS JOIN LATERAL (
       SELECT min(first.run_at) AS run_at
         FROM generate_series((SELECT j.priority::integer FROM faultline.jobs j
                                WHERE j.bucket = $1::smallint AND j.queue = c.queue AND j.priority >= 0
                                ORDER BY j.priority LIMIT 1),
                              (SELECT j.priority::integer FROM faultline.jobs j
                                WHERE j.bucket = $1::smallint AND j.queue = c.queue AND j.priority >= 0
                                ORDER BY j.priority DESC LIMIT 1)) AS p(priority)
        CROSS JOIN LATERAL (
              SELECT j.run_at FROM faultline.jobs j
               WHERE j.bucket = $1::smallint AND j.queue = c.queue AND j.priority = p.priority::smallint
                 AND j.priority >= 0 AND j.run_at <= faultline.clock() AND j.state = 'available'
               ORDER BY j.run_at LIMIT 1) AS first
        WHERE c.available > c.delayed) AS oldest
 ORDER BY c.queue
