-- Ends dead jobs for good. A function, because only who operates may call it; see there.
--
-- $1 bucket  $2 jobs  $3 who
SELECT p.job_id, p.purged, p.exhausted FROM faultline.purge_dead($1::smallint, $2::uuid[], $3::text) AS p
