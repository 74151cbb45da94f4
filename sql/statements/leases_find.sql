-- What became of attempts, by their leases: sql/functions/find_leases.sql.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids
SELECT f.id, f.outcome::text FROM faultline.find_leases($1::smallint, $2::uuid[], $3::bigint[], $4::uuid[]) AS f
