-- Folds the differences of the counts into one row per queue. Readers see the same sums before and after. Two folds
-- at once take turns, and nobody else waits for them: the verbs only ever add rows.
CREATE OR REPLACE FUNCTION faultline.fold_tallies(in_bucket smallint) RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    queues    text[];
    available bigint[];
    running   bigint[];
    held      bigint[];
    dead      bigint[];
    succeeded bigint[];
    cancelled bigint[];
BEGIN
    WITH taken AS (
        DELETE FROM faultline.tallies t WHERE t.bucket = in_bucket RETURNING t.*)
    SELECT array_agg(s.queue), array_agg(s.available), array_agg(s.running), array_agg(s.held), array_agg(s.dead),
           array_agg(s.succeeded), array_agg(s.cancelled)
      INTO queues, available, running, held, dead, succeeded, cancelled
      FROM (SELECT t.queue, sum(t.available)::bigint AS available, sum(t.running)::bigint AS running,
                   sum(t.held)::bigint AS held, sum(t.dead)::bigint AS dead, sum(t.succeeded)::bigint AS succeeded,
                   sum(t.cancelled)::bigint AS cancelled
              FROM taken t GROUP BY t.queue) AS s;
    INSERT INTO faultline.tallies (bucket, queue, available, running, held, dead, succeeded, cancelled)
    SELECT in_bucket, s.queue, s.available, s.running, s.held, s.dead, s.succeeded, s.cancelled
      FROM unnest(queues, available, running, held, dead, succeeded, cancelled)
           AS s(queue, available, running, held, dead, succeeded, cancelled);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.fold_tallies TO faultline_owner, faultline_worker;
