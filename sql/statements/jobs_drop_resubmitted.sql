-- Behind an enqueue that is sent again because the answer to the first was lost: a job that the first
-- one did add, and that has finished since, is in the ledger and must not run a second time.
--
-- $1 bucket  $2 ids
WITH dropped AS (
    DELETE FROM faultline.jobs j
     USING unnest($2::uuid[]) AS mine(id)
     WHERE j.bucket = $1::smallint AND j.id = mine.id AND j.token = 0
       AND EXISTS (SELECT FROM faultline.ledger l WHERE l.bucket = $1::smallint AND l.job_id = mine.id OFFSET 0)
    RETURNING j.id, j.queue
), tallied AS (
    INSERT INTO faultline.tallies (bucket, queue, available)
    SELECT $1::smallint, d.queue, -count(*) FROM dropped d GROUP BY d.queue
)
SELECT d.id FROM dropped d
