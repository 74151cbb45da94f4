-- Folds up to in_limit differences of one queue's counts into one row, for fold_tallies and for claims of queues with a cap,
-- and answers how many it took. Rows that another fold has in hand are passed over. No row is ever changed, so the sum of
-- those that are locked here is the one to put in their place.
CREATE OR REPLACE FUNCTION faultline.fold_queue(in_bucket smallint, in_queue text, in_limit bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE
    AS $$
#variable_conflict use_column
DECLARE
    sums record;
    ids  bigint[];
BEGIN
    SELECT sum(o.available)::bigint AS available, sum(o.delayed)::bigint AS delayed, sum(o.retrying)::bigint AS retrying,
           sum(o.running)::bigint AS running, sum(o.held)::bigint AS held, sum(o.dead)::bigint AS dead,
           sum(o.succeeded)::bigint AS succeeded, sum(o.cancelled)::bigint AS cancelled,
           sum(o.failures)::bigint AS failures, array_agg(o.id) AS ids
      INTO sums
      FROM (SELECT t.* FROM faultline.tallies t
             WHERE t.bucket = in_bucket AND t.queue = in_queue
             ORDER BY t.id
             LIMIT in_limit
               FOR UPDATE SKIP LOCKED) AS o;
    ids := sums.ids;
    IF coalesce(cardinality(ids), 0) < 2 THEN
        RETURN 0;
    END IF;
    -- Row by row: in one statement, the planner would walk all of the queue's rows, and look each up in the array.
    FOR i IN 1 .. cardinality(ids) LOOP
        DELETE FROM faultline.tallies t WHERE t.bucket = in_bucket AND t.queue = in_queue AND t.id = ids[i];
    END LOOP;
    INSERT INTO faultline.tallies (
           bucket, queue, available, delayed, retrying, running, held, dead, succeeded, cancelled, failures)
    VALUES (in_bucket, in_queue, sums.available, sums.delayed, sums.retrying, sums.running, sums.held, sums.dead,
            sums.succeeded, sums.cancelled, sums.failures);
    RETURN cardinality(ids);
END
$$;
