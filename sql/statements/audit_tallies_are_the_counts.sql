-- Queues whose counters are not the number of their jobs. Caps are held by these counters, and people believe them.
-- A finished job that was requeued since is counted where it is now.
--
-- Costs one walk over the live jobs, one over those that are marked as delayed, and one over the ledger.
--
-- $1 bucket  $2 rows at most
WITH counted AS MATERIALIZED (
    SELECT jobs.queue, jobs.state, sum(jobs.jobs) AS jobs
      FROM (SELECT j.queue, j.state::text AS state, count(*) AS jobs
              FROM faultline.jobs j
             WHERE j.bucket = $1::smallint AND j.queue <> ''
             GROUP BY j.queue, j.state
            UNION ALL
            SELECT j.queue, marks.state, count(*)
              FROM faultline.jobs j
             CROSS JOIN LATERAL (VALUES ('delayed', true), ('retrying', j.attempt > 0)) AS marks(state, holds)
             WHERE j.bucket = $1::smallint AND j.delayed AND j.state = 'available' AND marks.holds
             GROUP BY j.queue, marks.state
            UNION ALL
            SELECT l.queue, l.state::text, count(*)
              FROM faultline.ledger l
             WHERE l.bucket = $1::smallint AND l.state IN ('succeeded', 'cancelled')
               AND NOT EXISTS (SELECT FROM faultline.ledger r
                                WHERE r.bucket = $1::smallint AND r.job_id = l.job_id
                                  AND r.requeues = l.requeues + 1 AND r.outcome = 'requeued')
             GROUP BY l.queue, l.state) AS jobs
     GROUP BY jobs.queue, jobs.state
), tallied AS MATERIALIZED (
    SELECT t.queue, c.state, sum(c.jobs) AS jobs
      FROM faultline.tallies t
     CROSS JOIN LATERAL (VALUES ('available', t.available), ('delayed', t.delayed), ('retrying', t.retrying),
                                ('running', t.running), ('held', t.held), ('dead', t.dead), ('succeeded', t.succeeded),
                                ('cancelled', t.cancelled)) AS c(state, jobs)
     WHERE t.bucket = $1::smallint
     GROUP BY t.queue, c.state
), wrong AS MATERIALIZED (
    SELECT coalesce(c.queue, t.queue) AS subject,
           format('%s jobs are %s, and its counter says %s', coalesce(c.jobs, 0), coalesce(c.state, t.state),
                  coalesce(t.jobs, 0)) AS detail
      FROM counted c
      FULL JOIN tallied t ON t.queue = c.queue AND t.state = c.state
     WHERE coalesce(c.jobs, 0) <> coalesce(t.jobs, 0)
    UNION ALL
    SELECT f.queue, format('it has had %s failures', sum(f.failures))
      FROM faultline.tallies f
     WHERE f.bucket = $1::smallint
     GROUP BY f.queue
    HAVING sum(f.failures) < 0
)
SELECT count(*) OVER () AS violations, w.subject, w.detail FROM wrong w ORDER BY w.subject, w.detail LIMIT $2::bigint
