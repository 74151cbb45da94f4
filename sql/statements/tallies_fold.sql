-- Folds the differences of the counts into one row per queue. Readers see the same sums before and
-- after; two folds at once each fold what they could take.
--
-- $1 bucket
WITH folded AS (
    DELETE FROM faultline.tallies t WHERE t.bucket = $1::smallint RETURNING t.*
)
INSERT INTO faultline.tallies (bucket, queue, available, running, held, dead, succeeded, cancelled)
SELECT $1::smallint, f.queue, sum(f.available), sum(f.running), sum(f.held), sum(f.dead), sum(f.succeeded),
       sum(f.cancelled)
  FROM folded f GROUP BY f.queue
