-- Renews leases, fenced: sql/functions/renew_leases.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 TTLs in ms, NULL: those of the leases  $7 verb
-- $8 whether each has begun  $9 alone; NULL: nothing is said of that
SELECT * FROM faultline.renew_leases($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::bigint[],
                                     $7::text, $8::boolean[], $9::boolean[])
