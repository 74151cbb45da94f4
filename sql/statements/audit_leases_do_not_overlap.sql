-- Attempts that began before the one before them had ended. Five seconds are let through: a statement's time is read
-- a little before it sees the rows, so that a claim which finds a job put back a moment ago may carry the
-- earlier time, and on a machine without breath the moment is long. A database whose clock was set back is found here.
--
-- Costs one walk over the ledger, for each row that is not its job's first a look at the one before it, and one look
-- for each running job.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, wrong.job_id::text AS subject, wrong.detail
  FROM (SELECT l.job_id,
               format('token %s was from %s to %s, and the one before it ended at %s', l.token,
                      coalesce(l.started_at::text, 'nowhere'), l.ended_at, coalesce(before.ended_at::text, 'no time'))
                   AS detail
          FROM faultline.ledger l
          LEFT JOIN LATERAL (
               SELECT b.ended_at FROM faultline.ledger b
                WHERE b.bucket = $1::smallint AND b.job_id = l.job_id AND b.token < l.token AND l.token > 1
                ORDER BY b.token DESC LIMIT 1) AS before ON true
         WHERE l.bucket = $1::smallint
           AND (l.ended_at < l.started_at - interval '5 seconds'
                OR least(l.started_at, l.ended_at) < before.ended_at - interval '5 seconds')
        UNION ALL
        SELECT j.id, format('it runs since %s with token %s, and the attempt before ended at %s', j.claimed_at,
                            j.token, last.ended_at)
          FROM faultline.jobs j
         CROSS JOIN LATERAL (
               SELECT l.ended_at FROM faultline.ledger l
                WHERE l.bucket = $1::smallint AND l.job_id = j.id
                ORDER BY l.token DESC LIMIT 1) AS last
         WHERE j.bucket = $1::smallint AND j.state = 'running' AND j.queue <> ''
           AND j.claimed_at < last.ended_at - interval '5 seconds') AS wrong
 ORDER BY wrong.job_id, wrong.detail
 LIMIT $2::bigint
