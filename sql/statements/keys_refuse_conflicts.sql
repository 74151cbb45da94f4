-- Fails if a key belongs to a job of another kind or payload: sql/functions/refuse_conflicts.sql.
--
-- $1 bucket  $2 queue  $3 keys  $4 fingerprints
SELECT faultline.refuse_conflicts($1::smallint, $2::text, $3::text[], $4::bytea[])
