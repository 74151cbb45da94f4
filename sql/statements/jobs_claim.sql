-- Takes due jobs of one queue and grants their leases: sql/functions/claim_jobs.sql says why nobody can ever hold the same
-- job twice.
--
-- $1 bucket  $2 queue  $3 worker  $4 lease id  $5 jobs at most
-- $6 priorities, first to last  $7, $8 (run_at, id) after which to look, per priority
-- $9 whether to wait for the turn at a queue with a cap  $10 whether jobs may wait at the worker  $11 suspects at most
SELECT * FROM faultline.claim_jobs($1::smallint, $2::text, $3::text, $4::uuid, $5::bigint, $6::smallint[],
                                   $7::timestamptz[], $8::uuid[], $9::boolean, $10::boolean, $11::bigint)
