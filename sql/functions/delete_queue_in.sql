-- Deletes a queue in one bucket if it has no live jobs there, or only says how many it has. Nothing is added to it from
-- then on, and nobody sees it.
--
-- The row stays, marked. A producer's transaction that had begun to add a job does so all the same, and a finished job
-- may be requeued: then the queue is seen again, with that job. To wait for all such transactions would hold everybody up.
CREATE OR REPLACE FUNCTION faultline.delete_queue_in(in_bucket smallint, in_name text, in_delete boolean)
RETURNS TABLE (known boolean, live bigint)
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
BEGIN
    PERFORM FROM faultline.queues q WHERE q.bucket = in_bucket AND q.name = in_name FOR UPDATE;
    known := FOUND;
    time_now := faultline.clock_now();
    SELECT coalesce(sum(t.available + t.running + t.held + t.dead), 0) INTO live
      FROM faultline.tallies t WHERE t.bucket = in_bucket AND t.queue = in_name;
    IF in_delete AND live > 0 THEN
        RAISE EXCEPTION 'a job was added to the queue % at this moment', quote_nullable(in_name)
            USING ERRCODE = 'FL423', HINT = 'Nothing was deleted. Look again.';
    ELSIF in_delete THEN
        UPDATE faultline.queues q SET deleted_at = time_now, updated_at = time_now, paused = false, running_max = NULL
         WHERE q.bucket = in_bucket AND q.name = in_name AND q.deleted_at IS NULL;
    END IF;
    RETURN NEXT;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.delete_queue_in TO faultline_owner;
