-- What was fixed when the schema was made. Every bucket has a row that says the same.
--
-- $1 bucket
SELECT m.buckets, m.payload_bytes_max, faultline.clock() FROM faultline.meta m WHERE m.bucket = $1::smallint
