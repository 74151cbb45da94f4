-- Adds a key, unless there are as many good ones as may be: every server keeps all of them in memory. Revoked and
-- expired ones do not count. Two that are added at once may pass the limit by one, which harms nobody.
--
-- $1 bucket  $2 id  $3 name  $4 hash of the secret  $5 scopes  $6 queues, NULL: all  $7 seconds until it expires, NULL:
-- never  $8 how many there may be
INSERT INTO faultline.api_keys (bucket, id, name, secret_hash, scopes, queues, expires_at)
SELECT $1::smallint, $2::text, $3::text, $4::bytea, $5::text[], $6::text[],
       faultline.clock() + $7::bigint * interval '1 second'
 WHERE (SELECT count(*)
          FROM faultline.api_keys k
         WHERE k.bucket = $1::smallint AND k.revoked_at IS NULL
           AND (k.expires_at IS NULL OR k.expires_at > faultline.clock())) < $8::bigint
RETURNING created_at, expires_at
