-- Deletes a queue that has no live jobs, in all buckets. Answers `deleted`, also when it was before; `has_jobs`, with the
-- number of its live jobs; or `not_found`. Finished jobs that are still kept do not keep it: they go when their time has
-- come. set_queue makes a queue of this name anew.
CREATE OR REPLACE FUNCTION faultline.delete_queue(name text, OUT status text, OUT live bigint)
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    known boolean;
BEGIN
    SELECT bool_or(d.known), sum(d.live) INTO known, live
      FROM faultline.meta m CROSS JOIN LATERAL faultline.delete_queue_in(m.bucket, name, false) AS d;
    status := CASE WHEN NOT known THEN 'not_found' WHEN live > 0 THEN 'has_jobs' ELSE 'deleted' END;
    IF status = 'deleted' THEN
        PERFORM faultline.delete_queue_in(m.bucket, name, true) FROM faultline.meta m ORDER BY m.bucket;
    END IF;
END
$$;
COMMENT ON FUNCTION faultline.delete_queue IS
    'Deletes a queue that has no live jobs: `deleted`, `has_jobs` with their number, or `not_found`.';
GRANT EXECUTE ON FUNCTION faultline.delete_queue TO faultline_owner;
