-- Takes idempotency keys for new jobs. A key that is taken stays with its job, unless it has expired.
-- Two producers with the same key meet here: the second waits until the first is through. Runs in front
-- of jobs_enqueue_keyed, which then sees whose key it is.
--
-- $1 bucket  $2 ids  $3 queues  $4 keys  $5 fingerprints
INSERT INTO faultline.idempotency_keys AS k (bucket, queue, key, job_id, fingerprint)
SELECT $1::smallint, new.queue, new.key, new.id, new.fingerprint
  FROM unnest($2::uuid[], $3::text[], $4::text[], $5::bytea[]) AS new(id, queue, key, fingerprint)
 ORDER BY new.queue, new.key
ON CONFLICT (bucket, queue, key) DO UPDATE
   SET job_id = EXCLUDED.job_id, fingerprint = EXCLUDED.fingerprint, created_at = faultline.clock(),
       expires_at = NULL
 WHERE k.bucket = $1::smallint AND k.expires_at <= faultline.clock()
