#pragma once

#include <string>
#include <vector>

#include "support/database.h"

namespace faultline::testing {

/// What is true of a database between any two transactions, whatever happened before. Gives each broken
/// rule as a line of text; nothing: all is well. Assumes that no test wrote to the tables by hand.
///
/// The rules are stronger than what readers need. Every token that was ever minted ends in one ledger row (a
/// claim when its attempt ends, an operator's act at once), so the ledger of a job has no gap: it reaches to
/// the job's own token, or to the one before while the attempt runs.
[[nodiscard]] inline std::vector<std::string> broken_invariants(pg::Connection& connection) {
  static constexpr std::string_view kRules = R"sql(
    WITH live AS MATERIALIZED (
        SELECT * FROM faultline.jobs WHERE queue <> ''
    ), newest AS MATERIALIZED (
        SELECT DISTINCT ON (job_id) * FROM faultline.ledger ORDER BY job_id, token DESC
    ), history AS MATERIALIZED (
        SELECT job_id, count(*) AS entries, min(token) AS first, max(token) AS last,
               count(*) FILTER (WHERE outcome = 'requeued') AS requeues
          FROM faultline.ledger GROUP BY job_id
    ), in_order AS MATERIALIZED (
        SELECT job_id, started_at, ended_at, lag(ended_at) OVER (PARTITION BY job_id ORDER BY token) AS ended_before
          FROM faultline.ledger
    ), counted AS MATERIALIZED (
        SELECT queue, count(*) FILTER (WHERE state = 'available') AS available,
               count(*) FILTER (WHERE state = 'available' AND delayed) AS delayed,
               count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state = 'held') AS held,
               count(*) FILTER (WHERE state = 'dead') AS dead, count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
               count(*) FILTER (WHERE state = 'cancelled') AS cancelled
          FROM (SELECT queue, state, delayed FROM live
                UNION ALL
                SELECT queue, state, false FROM newest WHERE state IN ('succeeded', 'cancelled')) AS jobs
         GROUP BY queue
    ), tallied AS MATERIALIZED (
        SELECT queue, sum(available) AS available, sum(delayed) AS delayed, sum(running) AS running, sum(held) AS held,
               sum(dead) AS dead, sum(succeeded) AS succeeded, sum(cancelled) AS cancelled
          FROM faultline.tallies GROUP BY queue
    )
    SELECT 'two ledger rows have one token' AS rule, job_id::text AS subject
      FROM faultline.ledger GROUP BY job_id, token HAVING count(*) > 1
    UNION ALL
    SELECT 'the job finished twice without a requeue', job_id::text
      FROM faultline.ledger WHERE state IN ('succeeded', 'cancelled') GROUP BY job_id, requeues HAVING count(*) > 1
    UNION ALL
    SELECT 'the job is live and finished', id::text
      FROM live JOIN newest ON newest.job_id = live.id WHERE newest.state IN ('succeeded', 'cancelled')
    UNION ALL
    SELECT 'the job is neither live nor finished', job_id::text
      FROM newest LEFT JOIN live ON live.id = newest.job_id
     WHERE live.id IS NULL AND newest.state NOT IN ('succeeded', 'cancelled')
    UNION ALL
    SELECT 'the ledger has a gap', job_id::text FROM history WHERE first <> 1 OR last <> entries
    UNION ALL
    SELECT 'the token is not the one behind the ledger''s last', id::text
      FROM live LEFT JOIN history ON history.job_id = live.id
     WHERE live.token <> coalesce(history.last, 0) + CASE live.state WHEN 'running' THEN 1 ELSE 0 END
    UNION ALL
    SELECT 'the job is not where its last ledger row put it', id::text
      FROM live JOIN newest ON newest.job_id = live.id
     WHERE live.state <> 'running' AND live.state <> newest.state
    UNION ALL
    SELECT 'the requeues are miscounted', history.job_id::text
      FROM history JOIN newest ON newest.job_id = history.job_id LEFT JOIN live ON live.id = history.job_id
     WHERE history.requeues <> coalesce(live.requeues, newest.requeues)
    UNION ALL
    SELECT 'running, and without a lease; or the other way round', id::text
      FROM live
     WHERE (state = 'running') <> (lease_id IS NOT NULL AND lease_expires_at IS NOT NULL AND worker IS NOT NULL)
    UNION ALL
    SELECT 'a cancellation is asked of a job that nobody runs', id::text
      FROM live WHERE cancel_requested_at IS NOT NULL AND state <> 'running'
    UNION ALL
    SELECT 'the attempts are out of bounds', id::text
      FROM live JOIN faultline.queues q ON q.bucket = live.bucket AND q.name = live.queue
     WHERE live.attempt < 0 OR live.attempt > coalesce(live.attempts_max, q.attempts_max)
    UNION ALL
    SELECT 'two leases overlap in time', job_id::text
      FROM in_order WHERE started_at < ended_before OR ended_at < started_at OR ended_at < ended_before
    UNION ALL
    SELECT 'two leases overlap in time', id::text
      FROM live JOIN newest ON newest.job_id = live.id WHERE live.claimed_at < newest.ended_at
    UNION ALL
    SELECT 'the lease outlives the maximum run time', id::text
      FROM live WHERE lease_expires_at > claimed_at + run_max_ms * interval '1 millisecond'
    UNION ALL
    SELECT 'no grant names the running job in time', id::text
      FROM live
     WHERE live.state = 'running'
       AND NOT EXISTS (SELECT FROM faultline.grants g
                        WHERE g.bucket = live.bucket AND g.lease_id = live.lease_id
                          AND g.check_at <= live.lease_expires_at AND live.id = ANY (g.job_ids))
    UNION ALL
    SELECT 'the job waits for a time to come and is not marked, or waits for a person and is', id::text
      FROM live
     WHERE state = 'available' AND run_at > faultline.clock() AND NOT delayed
        OR state IN ('held', 'dead') AND delayed
    UNION ALL
    SELECT 'the tallies are not the counts', queue
      FROM counted c FULL JOIN tallied t USING (queue)
     WHERE (coalesce(c.available, 0), coalesce(c.running, 0), coalesce(c.held, 0), coalesce(c.dead, 0),
            coalesce(c.succeeded, 0), coalesce(c.cancelled, 0), coalesce(c.delayed, 0))
        <> (coalesce(t.available, 0), coalesce(t.running, 0), coalesce(t.held, 0), coalesce(t.dead, 0),
            coalesce(t.succeeded, 0), coalesce(t.cancelled, 0), coalesce(t.delayed, 0))
    UNION ALL
    SELECT 'an effect carries a token that the job never had', e.job_id::text
      FROM faultline.effects e
      LEFT JOIN live ON live.id = e.job_id LEFT JOIN newest ON newest.job_id = e.job_id
     WHERE e.token > coalesce(live.token, newest.token, 0)
    UNION ALL
    SELECT 'the idempotency key has a date though its job is on record, or none though it was retired', k.key
      FROM faultline.idempotency_keys k LEFT JOIN live ON live.id = k.job_id
     WHERE (live.id IS NULL AND NOT EXISTS (SELECT FROM faultline.ledger l WHERE l.job_id = k.job_id))
           <> (k.expires_at IS NOT NULL)
  )sql";
  const pg::Result rows = must(connection.exec({"", kRules}, {}, soon()));
  std::vector<std::string> broken;
  for (int row = 0; row < rows.rows(); ++row) {
    broken.push_back(rows.get<std::string>(row, 0) + ": " + rows.get<std::string>(row, 1));
  }
  return broken;
}

}  // namespace faultline::testing
