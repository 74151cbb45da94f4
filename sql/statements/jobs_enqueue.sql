-- Adds jobs: sql/functions/enqueue_jobs.sql. A row comes back for each job with a key.
--
-- $1 bucket  $2 queue  $3 ids  $4 kinds  $5 payloads  $6 encodings  $7 priorities
-- $8 run_at, NULL: after the delay  $9 delay in ms  $10 attempts_max  $11 lease_ttl_ms  $12 run_max_ms
-- $13 backoff_base_ms  $14 backoff_max_ms  $15 delivery  $16 tags, as JSON arrays
-- $17 traceparents  $18 keys  $19 fingerprints; of the options NULL: no job uses it
SELECT * FROM faultline.enqueue_jobs(
    $1::smallint, $2::text, $3::uuid[], $4::text[], $5::bytea[], $6::faultline.encoding[], $7::smallint[],
    $8::timestamptz[], $9::bigint[], $10::integer[], $11::integer[], $12::bigint[], $13::integer[], $14::integer[],
    $15::faultline.delivery[], $16::text[], $17::text[], $18::text[], $19::bytea[])
