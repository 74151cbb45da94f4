-- What became of attempts, by their leases: the ledger's word on a settlement whose answer was lost.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids
SELECT l.job_id, l.outcome::text, l.state::text, l.ended_at
  FROM unnest($2::uuid[], $3::bigint[], $4::uuid[]) AS mine(id, token, lease_id)
 CROSS JOIN LATERAL (
       SELECT * FROM faultline.ledger t
        WHERE t.bucket = $1::smallint AND t.job_id = mine.id AND t.token = mine.token
          AND t.lease_id = mine.lease_id LIMIT 1) AS l
