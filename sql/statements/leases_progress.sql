-- Notes how far running jobs are. Fenced like every write; what does not come back was refused.
--
-- $1 bucket  $2 jobs  $3 tokens  $4 lease ids  $5 fractions  $6 notes
WITH reported AS (
    UPDATE faultline.jobs j
       SET progress = mine.fraction, progress_note = mine.note
      FROM unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::float8[], $6::text[])
           AS mine(id, token, lease_id, fraction, note)
     WHERE mine.token > 0 AND mine.token <= 9223372036854775807
       AND j.bucket = $1::smallint AND j.id = mine.id
       AND j.token = mine.token AND j.lease_id = mine.lease_id
       AND j.lease_expires_at > faultline.clock() AND j.cancel_requested_at IS NULL
    RETURNING j.id, j.lease_expires_at
)
SELECT r.id, (SELECT faultline.still_in_time(min(first.lease_expires_at)) FROM reported first) FROM reported r
