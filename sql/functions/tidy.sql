-- One round of housekeeping: retires finished jobs, idempotency keys and evidence past their queue's retention, 1000 of
-- each and bucket at most, folds the counts, as far as that goes in one round, and returns how many jobs and keys went. Where neither a server nor a worker
-- of the library runs, somebody calls it every minute.
CREATE OR REPLACE FUNCTION faultline.tidy() RETURNS bigint
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    gone  bigint := 0;
    place smallint;
BEGIN
    FOR place IN SELECT m.bucket FROM faultline.meta m ORDER BY m.bucket LOOP
        gone := gone + faultline.prune_jobs(place, 1000) + faultline.prune_dead(place, 1000) + faultline.prune_keys(place, 1000);
        PERFORM faultline.prune_stale_writes(place, 1000);
        PERFORM faultline.fold_tallies(place, 1000, 10000);
    END LOOP;
    RETURN gone;
END
$$;
COMMENT ON FUNCTION faultline.tidy IS
    'Retires what is past its retention and returns how many jobs and keys went. '
    'To be called every minute where neither a server nor a worker of the library runs.';
GRANT EXECUTE ON FUNCTION faultline.tidy TO faultline_owner, faultline_worker;
