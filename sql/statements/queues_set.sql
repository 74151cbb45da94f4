-- Makes a queue or changes its settings: sql/functions/set_queue_in.sql. NULL leaves a setting as it is.
--
-- $1 bucket  $2 name  $3 paused  $4 running_max, -1: no cap  $5 lease_ttl_ms  $6 attempts_max
-- $7 backoff_base_ms  $8 backoff_max_ms  $9 retention_ms  $10 key_retention_ms  $11 dead_retention_ms
-- $12 whether to make one that there is not
SELECT faultline.set_queue_in($1::smallint, $2::text, $3::boolean, $4::integer, $5::integer, $6::integer, $7::integer,
                              $8::integer, $9::bigint, $10::bigint, $11::bigint, $12::boolean)
