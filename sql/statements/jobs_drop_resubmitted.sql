-- After an enqueue that is sent again because the answer to the first was lost: a job that the first
-- one did add, and that has finished since, is in the ledger and must not run a second time. A function,
-- because producers have no right to delete jobs.
--
-- $1 bucket  $2 ids
SELECT faultline.drop_resubmitted($1::smallint, $2::uuid[])
