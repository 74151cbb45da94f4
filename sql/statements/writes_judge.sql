-- Whether writes under these leases are good, with evidence if they are not: sql/functions/judge_writes.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 verbs  $7 outcomes, NULL: the verb settles nothing
-- $8 results  $9 errors
SELECT * FROM faultline.judge_writes($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::text[],
                                     $7::faultline.outcome[], $8::bytea[], $9::text[])
