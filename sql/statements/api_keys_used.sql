-- Notes that keys are in use, to the minute: who asks again within one writes nothing, however many servers ask.
--
-- $1 bucket  $2 ids
UPDATE faultline.api_keys k
   SET last_used_at = faultline.clock()
 WHERE k.bucket = $1::smallint AND k.id = ANY ($2::text[])
   AND (k.last_used_at IS NULL OR k.last_used_at <= faultline.clock() - interval '1 minute')
