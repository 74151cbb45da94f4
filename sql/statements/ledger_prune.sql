-- Retires finished jobs past their queue's retention, with all that belongs to them. A function, because
-- it runs with the owner's right to delete from the ledger, which workers do not have.
--
-- $1 bucket  $2 jobs at most
SELECT faultline.prune_finished($1::smallint, $2::bigint)
