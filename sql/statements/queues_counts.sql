-- How many jobs are where, per queue, and since when the oldest due one waits. Sums of differences, so
-- a million jobs cost no more than ten.
--
-- Due and scheduled are one stored state: up to $2 of each are counted, and if either is fewer than
-- that, the other is the rest. Only where both are more is the scheduled side counted whole.
--
-- $1 bucket  $2 jobs to count of due and of scheduled  $3 queue, NULL: all
SELECT q.name AS queue, coalesce(t.available, 0)::bigint AS waiting, coalesce(t.running, 0)::bigint AS running,
       coalesce(t.held, 0)::bigint AS held, coalesce(t.dead, 0)::bigint AS dead,
       coalesce(t.succeeded, 0)::bigint AS succeeded, coalesce(t.cancelled, 0)::bigint AS cancelled,
       CASE WHEN near.scheduled < $2::bigint THEN near.scheduled
            WHEN near.due < $2::bigint THEN coalesce(t.available, 0)::bigint - near.due
            ELSE (SELECT count(*)
                    FROM generate_series(0, 9) AS p(priority)
                   CROSS JOIN LATERAL (
                         SELECT FROM faultline.jobs j
                          WHERE j.bucket = $1::smallint AND j.queue = q.name AND j.priority = p.priority::smallint AND j.priority >= 0
                            AND j.run_at > faultline.clock() AND j.run_at < 'infinity'
                            AND j.state = 'available') AS each)
       END AS scheduled,
       oldest.run_at AS oldest_due_at,
       faultline.clock() AS now
  FROM faultline.queues q
  LEFT JOIN LATERAL (
       SELECT sum(s.available) AS available, sum(s.running) AS running, sum(s.held) AS held, sum(s.dead) AS dead,
              sum(s.succeeded) AS succeeded, sum(s.cancelled) AS cancelled
         FROM faultline.tallies s
        WHERE s.bucket = $1::smallint AND s.queue = q.name) AS t ON true
 CROSS JOIN LATERAL (
       SELECT (SELECT count(*) FROM (
                   SELECT FROM generate_series(0, 9) AS p(priority)
                    CROSS JOIN LATERAL (
                          SELECT FROM faultline.jobs j
                           WHERE j.bucket = $1::smallint AND j.queue = q.name
                             AND j.priority = p.priority::smallint AND j.priority >= 0
                             AND j.run_at > faultline.clock() AND j.run_at < 'infinity'
                             AND j.state = 'available' LIMIT $2::bigint) AS each
                    LIMIT $2::bigint) AS first_ones) AS scheduled,
              (SELECT count(*) FROM (
                   SELECT FROM generate_series(0, 9) AS p(priority)
                    CROSS JOIN LATERAL (
                          SELECT FROM faultline.jobs j
                           WHERE j.bucket = $1::smallint AND j.queue = q.name
                             AND j.priority = p.priority::smallint AND j.priority >= 0
                             AND j.run_at <= faultline.clock()
                             AND j.state = 'available' LIMIT $2::bigint) AS each
                    LIMIT $2::bigint) AS first_ones) AS due) AS near
 CROSS JOIN LATERAL (
       SELECT min(first.run_at) AS run_at
         FROM generate_series(0, 9) AS p(priority)
        CROSS JOIN LATERAL (
              SELECT j.run_at FROM faultline.jobs j
               WHERE j.bucket = $1::smallint AND j.queue = q.name AND j.priority = p.priority::smallint AND j.priority >= 0
                 AND j.run_at <= faultline.clock() AND j.state = 'available'
               ORDER BY j.run_at LIMIT 1) AS first) AS oldest
 WHERE q.bucket = $1::smallint AND ($3::text IS NULL OR q.name = $3::text)
 ORDER BY q.name
