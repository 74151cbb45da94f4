-- Retires up to in_limit finished jobs whose queue's retention has passed, with all that belongs to them, and their
-- idempotency keys; a key that is to outlive its job gets the date until which it is good.
--
-- Two statements: the first locks each job's last row in the ledger, the second sees what is true under that lock: the
-- locked row must still be the last. A requeue locks the same row, so a job is retired or brought back, never both; and
-- one that was requeued, ran and finished again between the two has another last row, and stays. What was deleted is
-- what is counted.
--
-- It waits for nobody: what somebody holds, a producer's open transaction included, is retired another time.
CREATE OR REPLACE FUNCTION faultline.prune_jobs(in_bucket smallint, in_limit bigint) RETURNS bigint
    /*verb*/
    -- Of the indexes that hold a queue's finished jobs only ledger_retention has them in this order: a queue in which nothing
    -- is due costs one look, however many finished jobs it has.
    SET enable_sort = off
    SET enable_incremental_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    ids      uuid[];
    tokens   bigint[];
    queues   text[];
    states   faultline.job_state[];
    keys     text[];
    ends     timestamptz[];
    held     uuid[];
BEGIN
    SELECT array_agg(f.job_id), array_agg(f.token) INTO ids, tokens
      FROM (SELECT o.job_id, o.token
              FROM faultline.queues q
             CROSS JOIN LATERAL (
                   SELECT l.job_id, l.token
                     FROM faultline.ledger l
                    WHERE l.bucket = in_bucket AND l.queue = q.name AND l.state IN ('succeeded', 'cancelled')
                      AND l.ended_at < time_now - q.retention_ms * interval '1 millisecond'
                      AND l.token = (SELECT newest.token FROM faultline.ledger newest
                                      WHERE newest.bucket = in_bucket AND newest.job_id = l.job_id
                                      ORDER BY newest.token DESC LIMIT 1)
                    ORDER BY l.ended_at
                    LIMIT in_limit
                      FOR UPDATE SKIP LOCKED) AS o
             WHERE q.bucket = in_bucket
             LIMIT in_limit) AS f;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;

    SELECT array_agg(l.job_id), array_agg(l.queue), array_agg(l.state), array_agg(l.idempotency_key),
           array_agg(l.ended_at + q.key_retention_ms * interval '1 millisecond')
      INTO ids, queues, states, keys, ends
      FROM unnest(ids, tokens) AS c(id, token)
     CROSS JOIN LATERAL (
           SELECT f.job_id, f.token, f.queue, f.state, f.idempotency_key, f.ended_at FROM faultline.ledger f
            WHERE f.bucket = in_bucket AND f.job_id = c.id
            ORDER BY f.token DESC LIMIT 1) AS l
     CROSS JOIN LATERAL (
           SELECT s.key_retention_ms FROM faultline.queues s
            WHERE s.bucket = in_bucket AND s.name = l.queue LIMIT 1) AS q
     WHERE l.token = c.token;
    -- Keys of ours that a producer has in hand: their jobs stay for now.
    SELECT array_agg(c.id) INTO held
      FROM unnest(ids, queues, keys) AS c(id, queue, key)
     CROSS JOIN LATERAL (
           SELECT k.job_id FROM faultline.idempotency_keys k
            WHERE k.bucket = in_bucket AND k.queue = c.queue AND k.key = c.key LIMIT 1) AS k
      LEFT JOIN LATERAL (
           SELECT l.job_id FROM faultline.idempotency_keys l
            WHERE l.bucket = in_bucket AND l.queue = c.queue AND l.key = c.key LIMIT 1
              FOR UPDATE SKIP LOCKED) AS locked ON true
     WHERE c.key IS NOT NULL AND k.job_id = c.id AND locked.job_id IS NULL;
    SELECT array_agg(c.id), array_agg(c.queue), array_agg(c.state), array_agg(c.key), array_agg(c.ends_at)
      INTO ids, queues, states, keys, ends
      FROM unnest(ids, queues, states, keys, ends) AS c(id, queue, state, key, ends_at)
     WHERE c.id <> ALL (coalesce(held, '{}'));
    IF ids IS NULL THEN
        RETURN 0;
    END IF;

    -- Job by job: in one statement, the planner would walk all rows of a table that looks empty to it.
    FOR i IN 1 .. cardinality(ids) LOOP
        IF keys[i] IS NOT NULL AND ends[i] <= time_now THEN
            DELETE FROM faultline.idempotency_keys k
             WHERE k.bucket = in_bucket AND k.queue = queues[i] AND k.key = keys[i] AND k.job_id = ids[i];
        ELSIF keys[i] IS NOT NULL THEN
            UPDATE faultline.idempotency_keys k SET expires_at = ends[i]
             WHERE k.bucket = in_bucket AND k.queue = queues[i] AND k.key = keys[i] AND k.job_id = ids[i];
        END IF;
        DELETE FROM faultline.effects e WHERE e.bucket = in_bucket AND e.job_id = ids[i];
        DELETE FROM faultline.stale_writes s WHERE s.bucket = in_bucket AND s.job_id = ids[i];
        DELETE FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = ids[i];
    END LOOP;
    INSERT INTO faultline.tallies (bucket, queue, succeeded, cancelled)
    SELECT in_bucket, c.queue, -count(*) FILTER (WHERE c.state = 'succeeded'),
           -count(*) FILTER (WHERE c.state = 'cancelled')
      FROM unnest(queues, states) AS c(queue, state) GROUP BY c.queue;
    RETURN cardinality(ids);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.prune_jobs TO faultline_owner, faultline_worker;
