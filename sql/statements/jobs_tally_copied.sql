-- Counts the jobs that COPY has just added in the same transaction.
--
-- $1 bucket  $2 queues  $3 counts
INSERT INTO faultline.tallies (bucket, queue, available)
SELECT $1::smallint, new.queue, new.jobs FROM unnest($2::text[], $3::bigint[]) AS new(queue, jobs)
