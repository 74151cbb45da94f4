-- Ends attempts, fenced: sql/functions/settle_jobs.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 outcomes  $7 results  $8 errors  $9 delays in ms
-- $10 writers
SELECT * FROM faultline.settle_jobs($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[], $5::text[],
                                    $6::faultline.outcome[], $7::bytea[], $8::text[], $9::bigint[], $10::text[])
