-- Leases that were refused as superseded or run out, and whose attempt succeeded later all the same: the fence let a
-- stale writer through.
--
-- Costs one walk over the evidence, with a look into the ledger for each.
--
-- $1 bucket  $2 rows at most
SELECT count(*) OVER () AS violations, s.job_id::text AS subject,
       format('token %s of %s was refused at %s (%s), and succeeded at %s', s.token, s.worker, s.at, s.reason,
              l.ended_at) AS detail
  FROM faultline.stale_writes s
  JOIN faultline.ledger l ON l.job_id = s.job_id AND l.token = s.token AND l.lease_id = s.lease_id
 WHERE s.bucket = $1::smallint AND l.bucket = $1::smallint
   AND s.reason IN ('token_mismatch', 'lease_expired') AND l.outcome = 'succeeded' AND l.ended_at > s.at
 ORDER BY s.job_id, s.at
 LIMIT $2::bigint
