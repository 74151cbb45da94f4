-- All keys, for people: the newest last. Their hashes are nobody's business.
--
-- $1 bucket
SELECT k.id, k.name, k.scopes, k.queues, k.created_at, k.expires_at, k.revoked_at,
       coalesce(k.expires_at <= faultline.clock(), false) AS expired, k.last_used_at
  FROM faultline.api_keys k
 WHERE k.bucket = $1::smallint
 ORDER BY k.created_at, k.id
