-- Waits for the rows whose leases are about to be judged, in one order so that two judges never wait for
-- each other in a circle. A statement of its own: the judgement after it then has a snapshot and a
-- time that lie after the wait.
--
-- $1 bucket  $2 jobs
SELECT count(*)
  FROM (SELECT j.id FROM faultline.jobs j
         WHERE j.bucket = $1::smallint AND j.id = ANY ($2::uuid[])
         ORDER BY j.id FOR UPDATE) AS locked
