-- Retires up to in_limit finished jobs whose queue's retention has passed, with all that belongs to them, and their
-- idempotency keys; a key that is to outlive its job gets the date until which it is good.
--
-- No index has jobs by the time of their end: every settlement would pay for it. Ids begin with the time of their making, a
-- job ends after it was made, and the index of finished jobs has each queue's by id. So a round through the queues looks, in
-- each, at the jobs that were made before its retention, of which nearly all are due. It looks at ten times in_limit of them
-- at most, and the next call goes on from there: jobs that took longer than the retention until they ended are in
-- the way of others for a while, and nobody walks over all of them at once.
--
-- The making is by the producer's clock. One that is ahead makes jobs that are retired later by as much. Ids that are more than a
-- day ahead tell no time at all, and are looked at in every round.
--
-- Two statements retire: the first locks each job's last row in the ledger, the second sees what is true under that lock: the
-- locked row must still be the last. A requeue locks the same row, so a job is retired or brought back, never both; and
-- one that was requeued, ran and finished again between the two has another last row, and stays. What was deleted is
-- what is counted.
--
-- It waits for nobody: what somebody holds, a producer's open transaction included, is retired another time.
CREATE OR REPLACE FUNCTION faultline.prune_jobs(in_bucket smallint, in_limit bigint) RETURNS bigint
    /*verb*/
    -- Of the indexes only ledger_finished has a queue's finished jobs in this order.
    SET enable_sort = off
    SET enable_incremental_sort = off
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz := faultline.clock_now();
    begun    faultline.retention;
    place    record;
    looks    bigint := 0;
    ids      uuid[] := '{}';
    tokens   bigint[] := '{}';
    queues   text[];
    states   faultline.job_state[];
    keys     text[];
    ends     timestamptz[];
    held     uuid[];
BEGIN
    SELECT r.* INTO begun FROM faultline.retention r WHERE r.bucket = in_bucket;
    FOR place IN
        SELECT q.name AS queue, l.job_id, l.token, l.ended_at < q.ended_before AS due
          FROM (SELECT s.name, time_now - s.retention_ms * interval '1 millisecond' AS ended_before
                  FROM faultline.queues s
                 WHERE s.bucket = in_bucket AND s.name >= begun.queue
                 ORDER BY s.name) AS q
         CROSS JOIN LATERAL (VALUES
               (faultline.first_id('epoch'), faultline.first_id(q.ended_before)),
               (faultline.first_id(time_now + interval '1 day'), 'ffffffff-ffff-ffff-ffff-ffffffffffff')) AS made(first, after)
         CROSS JOIN LATERAL (
               SELECT f.job_id, f.token, f.ended_at
                 FROM faultline.ledger f
                WHERE f.bucket = in_bucket AND f.queue = q.name AND f.state IN ('succeeded', 'cancelled')
                  AND f.job_id >= CASE q.name WHEN begun.queue THEN greatest(made.first, begun.job_id) ELSE made.first END
                  AND f.job_id <= made.after
                ORDER BY f.job_id, f.requeues
                LIMIT 10 * in_limit) AS l
    LOOP
        looks := looks + 1;
        IF place.due THEN
            ids := ids || place.job_id;
            tokens := tokens || place.token;
        END IF;
        EXIT WHEN cardinality(ids) >= in_limit OR looks >= 10 * in_limit;
    END LOOP;
    -- The next one goes on from here, or begins the next round.
    IF cardinality(ids) < in_limit AND looks < 10 * in_limit THEN
        SELECT '' AS queue, '00000000-0000-0000-0000-000000000000'::uuid AS job_id INTO place;
    END IF;
    IF place.job_id <> begun.job_id OR place.queue <> begun.queue THEN
        PERFORM FROM faultline.retention r WHERE r.bucket = in_bucket FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            UPDATE faultline.retention r SET queue = place.queue, job_id = place.job_id WHERE r.bucket = in_bucket;
        END IF;
    END IF;

    SELECT array_agg(o.job_id), array_agg(o.token) INTO ids, tokens
      FROM unnest(ids, tokens) AS c(id, token)
     CROSS JOIN LATERAL (
           SELECT l.job_id, l.token
             FROM faultline.ledger l
            WHERE l.bucket = in_bucket AND l.job_id = c.id AND l.token = c.token
              AND l.token = (SELECT newest.token FROM faultline.ledger newest
                              WHERE newest.bucket = in_bucket AND newest.job_id = c.id
                              ORDER BY newest.token DESC LIMIT 1)
              FOR UPDATE SKIP LOCKED) AS o;
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
        DELETE FROM faultline.effect_decisions d WHERE d.bucket = in_bucket AND d.job_id = ids[i];
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
