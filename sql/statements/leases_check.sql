-- Asks whether leases are still good, and holds their rows until the end of the transaction: what the
-- caller writes in the same transaction is then covered by the fence. Nothing is changed.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids
WITH held AS MATERIALIZED (
    SELECT j.id, j.lease_expires_at
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[]) AS mine(id, token, lease_id)
     CROSS JOIN LATERAL (
           SELECT t.id, t.lease_expires_at FROM faultline.jobs t
            WHERE t.bucket = $1::smallint AND t.id = mine.id
              AND t.token = mine.token AND t.lease_id = mine.lease_id
              AND t.lease_expires_at > faultline.clock() AND t.cancel_requested_at IS NULL
              FOR UPDATE) AS j
)
SELECT h.id, (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM held first) FROM held h
