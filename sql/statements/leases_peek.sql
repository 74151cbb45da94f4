-- Whether a lease is good at this moment: sql/functions/peek_lease.sql.
--
-- $1 bucket  $2 job  $3 token  $4 lease id
SELECT p.id FROM faultline.peek_lease($1::smallint, $2::uuid, $3::bigint, $4::uuid) AS p
