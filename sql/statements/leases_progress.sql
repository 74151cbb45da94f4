-- Notes how far running jobs are, fenced: sql/functions/report_progress.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 workers  $6 fractions  $7 notes
SELECT * FROM faultline.report_progress($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[], $5::text[], $6::float8[],
                                        $7::text[])
