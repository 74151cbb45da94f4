-- Retires the evidence of stale writes that is older than the retention of its queue; what is about a finished job goes with
-- the job, if that is earlier (prune_jobs). In batches; two that prune at once pass over each other's.
CREATE OR REPLACE FUNCTION faultline.prune_stale_writes(in_bucket smallint, in_limit bigint) RETURNS bigint
    /*verb*/
    -- Of the indexes only stale_writes_retention has a queue's rows in this order.
    SET enable_sort = off
    SET enable_incremental_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    jobs     uuid[];
    ids      uuid[];
BEGIN
    SELECT array_agg(f.job_id), array_agg(f.id) INTO jobs, ids
      FROM (SELECT o.job_id, o.id
              FROM faultline.queues q
             CROSS JOIN LATERAL (
                   SELECT s.job_id, s.id FROM faultline.stale_writes s
                    WHERE s.bucket = in_bucket AND s.queue = q.name AND s.queue <> ''
                      AND s.at < time_now - q.retention_ms * interval '1 millisecond'
                    ORDER BY s.at
                    LIMIT in_limit
                      FOR UPDATE SKIP LOCKED) AS o
             WHERE q.bucket = in_bucket
             LIMIT in_limit) AS f;
    -- One row at a time: in one statement, the planner would walk all rows of a table that looks empty to it.
    FOR i IN 1 .. coalesce(cardinality(ids), 0) LOOP
        DELETE FROM faultline.stale_writes s WHERE s.bucket = in_bucket AND s.job_id = jobs[i] AND s.id = ids[i];
    END LOOP;
    RETURN coalesce(cardinality(ids), 0);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.prune_stale_writes TO faultline_owner, faultline_worker;
