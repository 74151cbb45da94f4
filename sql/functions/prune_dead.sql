-- Purges up to in_limit dead jobs whose queue's dead_retention has passed: as purge_jobs does for a person, with a token of
-- its own and on record for the queue's retention, by `dead_retention`.
--
-- It waits for nobody: what somebody holds is purged another time. A queue in which nothing is due costs one look.
CREATE OR REPLACE FUNCTION faultline.prune_dead(in_bucket smallint, in_limit bigint) RETURNS bigint
    /*verb*/
    SET enable_sort = off
    SET enable_incremental_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    ids      uuid[];
BEGIN
    SELECT array_agg(d.id) INTO ids
      FROM (SELECT o.id
              FROM faultline.queues q
             CROSS JOIN LATERAL (
                   SELECT j.id
                     FROM faultline.jobs j
                    WHERE j.bucket = in_bucket AND j.queue = q.name AND j.queue <> '' AND j.died_at IS NOT NULL
                      AND j.died_at < time_now - q.dead_retention_ms * interval '1 millisecond'
                      -- One without a token left can be neither purged nor requeued.
                      AND j.token < 9223372036854775807
                    ORDER BY j.died_at
                    LIMIT least(in_limit, 1000)
                      FOR UPDATE SKIP LOCKED) AS o
             -- Most queues keep them for ever, and are not looked at.
             WHERE q.bucket = in_bucket AND q.dead_retention_ms < 3153600000000
             LIMIT least(in_limit, 1000)) AS d;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;
    -- What is good for the walk above is bad for the lookups below.
    PERFORM set_config('enable_sort', 'on', true);
    RETURN (SELECT count(*) FROM faultline.purge_jobs(in_bucket, ids, 'dead_retention', gen_random_uuid()) AS p
             WHERE p.status = 'purged');
END
$$;
GRANT EXECUTE ON FUNCTION faultline.prune_dead TO faultline_owner, faultline_worker;
