-- Paused queues and how many jobs wait in them, by the counters.
--
-- $1 bucket
SELECT q.name, coalesce(w.waiting, 0)::bigint AS waiting
  FROM faultline.queues q
 CROSS JOIN LATERAL (
       SELECT sum(t.available) AS waiting FROM faultline.tallies t
        WHERE t.bucket = $1::smallint AND t.queue = q.name) AS w
 WHERE q.bucket = $1::smallint AND q.paused
 ORDER BY q.name
