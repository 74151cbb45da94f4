-- Brings a job back that is dead, held or finished, with its attempts anew, in the name of the login: `requeued`, `live`
-- (it waits or runs), `exhausted` or `not_found`. The same call_id sent again is told the same again, and does nothing.
CREATE OR REPLACE FUNCTION faultline.requeue(job uuid, call_id uuid DEFAULT gen_random_uuid()) RETURNS text
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    answer record;
BEGIN
    SELECT r.status, r.due_queue INTO answer FROM faultline.requeue_jobs(
        faultline.bucket_of_id(job), ARRAY[job], session_user::text, call_id) AS r;
    IF answer.status = 'requeued' AND answer.due_queue IS NOT NULL THEN
        PERFORM faultline.announce(answer.due_queue);
    END IF;
    RETURN answer.status;
END
$$;
COMMENT ON FUNCTION faultline.requeue IS
    'Brings back a job that is dead, held or finished: `requeued`, `live`, `exhausted` or `not_found`.';
GRANT EXECUTE ON FUNCTION faultline.requeue TO faultline_owner;
