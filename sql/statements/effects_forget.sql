-- Takes back announced effects that certainly did not happen, fenced: sql/functions/forget_effects.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 keys  $7 calls
SELECT * FROM faultline.forget_effects($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[],
                                       $7::uuid[])
