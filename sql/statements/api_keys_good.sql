-- The keys that are good now, for a server that keeps them at hand. The time stands in front, also when there are none.
--
-- $1 bucket
SELECT faultline.clock(), k.id, k.name, k.secret_hash, k.scopes, k.queues, k.expires_at
  FROM (SELECT) AS once
  LEFT JOIN faultline.api_keys k
    ON k.bucket = $1::smallint AND k.revoked_at IS NULL
   AND (k.expires_at IS NULL OR k.expires_at > faultline.clock())
