-- Deletes a queue that has no live jobs: sql/functions/delete_queue_in.sql.
--
-- $1 bucket  $2 name  $3 true: do it, false: only say how many live jobs it has
SELECT d.known, d.live FROM faultline.delete_queue_in($1::smallint, $2::text, $3::boolean) AS d
