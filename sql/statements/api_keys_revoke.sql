-- Ends a key, from now on. One that was revoked before stays revoked since then. No row: there is no such key.
--
-- $1 bucket  $2 id
UPDATE faultline.api_keys k
   SET revoked_at = coalesce(k.revoked_at, faultline.clock())
 WHERE k.bucket = $1::smallint AND k.id = $2::text
RETURNING k.id
