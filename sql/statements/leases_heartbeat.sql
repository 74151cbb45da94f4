-- Renews every lease of a worker at once, and tells which are to be cancelled. What does not come back
-- was not renewed: leases_judge says why. A renewal never changes the token, and an expired lease is
-- never renewed. Only lease_expires_at changes, which no index names: the update is heap-only.
--
-- A renewal never shortens a lease: the watchdog looks no earlier than it was told to (grants.check_at).
--
-- A lease whose job is to be cancelled keeps its expiry: the worker has until then to wind up.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 milliseconds to extend to, NULL: the job's TTL
WITH held AS MATERIALIZED (
    SELECT j.id, j.lease_expires_at, coalesce(mine.ttl_ms, j.lease_ttl_ms, q.lease_ttl_ms) AS ttl_ms
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[]) AS mine(id, token, lease_id, ttl_ms)
     CROSS JOIN LATERAL (
           SELECT t.id, t.queue, t.lease_ttl_ms, t.lease_expires_at FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id AND t.lease_expires_at > faultline.clock()
              FOR UPDATE) AS j
     CROSS JOIN LATERAL (
           SELECT s.lease_ttl_ms FROM faultline.queues s
            WHERE s.bucket = $1::smallint AND s.name = j.queue LIMIT 1) AS q
), renewed AS (
    UPDATE faultline.jobs j
       SET lease_expires_at = CASE
               WHEN j.cancel_requested_at IS NOT NULL THEN j.lease_expires_at
               ELSE greatest(j.lease_expires_at,
                             least(faultline.clock() + held.ttl_ms * interval '1 millisecond',
                                   j.claimed_at + j.run_max_ms * interval '1 millisecond'))
           END
      FROM held
     WHERE j.bucket = $1::smallint AND j.id = held.id AND held.ttl_ms > 0 AND held.ttl_ms < 1000000000
    RETURNING j.id, j.lease_expires_at, j.cancel_requested_at IS NOT NULL AS cancel_requested,
              j.cancel_reason, held.lease_expires_at AS expired_at
)
SELECT r.id, r.lease_expires_at, r.cancel_requested, r.cancel_reason,
       (SELECT faultline.still_in_time(min(first.expired_at)) FROM renewed first)
  FROM renewed r
