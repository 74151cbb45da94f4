-- Who holds locks that others wait for in this database, and waits for nobody himself: the first in the row, whom to end.
--
-- $1 rows at most
SELECT b.pid::bigint AS pid,
       format('%s, login %s', coalesce(nullif(b.application_name, ''), 'no application name'), b.usename) AS who,
       coalesce(b.state, b.backend_type, 'not shown to this login') AS state,
       extract(epoch FROM faultline.clock() - coalesce(b.xact_start, b.query_start, b.backend_start))::float8 AS age_seconds,
       count(DISTINCT w.pid) AS waiting
  FROM pg_stat_activity w
 CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS blocking(pid)
  JOIN pg_stat_activity b ON b.pid = blocking.pid
 -- What a session of another login waits for is hidden from a role without pg_read_all_stats; that it is blocked is not.
 WHERE w.datname = current_database() AND coalesce(w.wait_event_type, 'Lock') = 'Lock' AND cardinality(pg_blocking_pids(b.pid)) = 0
 GROUP BY 1, 2, 3, 4
 ORDER BY waiting DESC, age_seconds DESC
 LIMIT $1::bigint
