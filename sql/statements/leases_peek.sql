-- Whether a lease is the current one and has not run out, at this moment: for an attempt that is about to begin
-- something large. Locks nothing and decides nothing; what counts is the statement that ends the attempt.
--
-- $1 bucket  $2 job  $3 token  $4 lease id
SELECT j.id
  FROM faultline.jobs j
 WHERE j.bucket = $1::smallint AND j.id = $2::uuid AND j.token = $3::bigint AND j.lease_id = $4::uuid
   AND j.lease_expires_at > faultline.clock()
