-- Says why writes were refused, and keeps the evidence in the same transaction. Runs after leases_lock.
--
--   cancelled        the job was cancelled, or is to be
--   token_mismatch   a newer token was minted since; or the number is the same and the lease id is not
--                    (a number reissued after a failover); or there is no such job
--   lease_expired    the token is still the newest, its time is over
--   already_settled  the token is still the newest, its attempt has ended already
--
-- No reason: the lease is good, and the write may be tried again (it was undone only because another
-- lease of its batch ran out); or the write is one of two sendings of the same, and the ledger shows that
-- the other one was committed: `committed`. That is how a lost answer to COMMIT is resolved. Either this is
-- the second sending ($8), or it is the first one and was overtaken by the second, of which the ledger knows.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 verb
-- $7 outcomes, NULL: the verb settles nothing  $8 whether they are sent again
WITH judged AS MATERIALIZED (
    SELECT mine.id, mine.token, mine.lease_id, mine.worker,
           j.cancel_requested_at,
           coalesce(j.queue, last.queue) AS queue,
           coalesce(j.token, last.token) AS current_token,
           CASE WHEN j.id IS NOT NULL THEN j.lease_id ELSE last.lease_id END AS current_lease_id,
           CASE WHEN j.id IS NOT NULL THEN j.worker ELSE last.worker END AS current_worker,
           coalesce(j.state, last.state) AS current_state,
           coalesce(j.lease_expires_at, own.ended_at) AS lease_expired_at,
           own.committed,
           CASE WHEN own.committed THEN NULL
                WHEN j.id IS NULL AND last.state = 'cancelled' THEN 'cancelled'
                WHEN coalesce(j.token, last.token) IS DISTINCT FROM mine.token THEN 'token_mismatch'
                WHEN coalesce(j.lease_id, own.lease_id) IS DISTINCT FROM mine.lease_id THEN 'token_mismatch'
                WHEN own.outcome = 'expired' THEN 'lease_expired'
                WHEN own.outcome = 'cancelled' THEN 'cancelled'
                WHEN own.outcome IS NOT NULL THEN 'already_settled'
                WHEN j.lease_expires_at <= faultline.clock() THEN 'lease_expired'
                WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled'
           END::faultline.stale_reason AS reason
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $7::faultline.outcome[])
           AS mine(id, token, lease_id, worker, outcome)
      LEFT JOIN LATERAL (
           SELECT * FROM faultline.jobs t WHERE t.bucket = $1::smallint AND t.id = mine.id LIMIT 1) AS j ON true
      LEFT JOIN LATERAL (
           SELECT l.lease_id, l.outcome, l.ended_at,
                  l.lease_id = mine.lease_id AND l.outcome = mine.outcome AND ($8::boolean OR l.resent) AS committed
             FROM faultline.ledger l
            WHERE l.bucket = $1::smallint AND l.job_id = mine.id AND l.token = mine.token LIMIT 1) AS own ON true
      LEFT JOIN LATERAL (
           SELECT l.token, l.lease_id, l.worker, l.state, l.queue
             FROM faultline.ledger l
            WHERE l.bucket = $1::smallint AND l.job_id = mine.id
            ORDER BY l.token DESC LIMIT 1) AS last ON true
), evidence AS (
    INSERT INTO faultline.stale_writes (
           bucket, job_id, verb, reason, queue, token, lease_id, worker,
           current_token, current_lease_id, current_worker, current_state, lease_expired_at)
    SELECT $1::smallint, g.id, $6::text, g.reason, g.queue, g.token, g.lease_id, g.worker,
           g.current_token, g.current_lease_id, g.current_worker, g.current_state, g.lease_expired_at
      FROM judged g
     WHERE g.reason IS NOT NULL
)
SELECT g.id, g.reason::text, coalesce(g.committed, false) AS committed, g.current_token, g.current_worker,
       g.current_state::text, g.reason = 'cancelled' AND g.current_state = 'running' AS cancel_is_open,
       g.token, g.lease_id
  FROM judged g
