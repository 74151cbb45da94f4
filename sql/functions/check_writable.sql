-- Whether jobs can be written now; for those who have to say whether they are ready. It fails as the verbs would: with 55P03
-- when somebody has locked a table against writers, on a standby, and where a disk is full. It changes nothing: there is no
-- such job.
CREATE OR REPLACE FUNCTION faultline.check_writable(in_bucket smallint) RETURNS void
    /*verb*/
    SET work_mem = '64kB'
    AS $$
BEGIN
    UPDATE faultline.jobs j SET last_error = NULL
     WHERE j.bucket = in_bucket AND j.id = '00000000-0000-0000-0000-000000000000';
    DELETE FROM faultline.ledger l
     WHERE l.bucket = in_bucket AND l.job_id = '00000000-0000-0000-0000-000000000000' AND l.token = 0;
    -- More than fits into memory of that size: it goes through a temporary file, and needs room on the disk.
    PERFORM count(*) FROM generate_series(1, 10000);
END
$$;
GRANT EXECUTE ON FUNCTION faultline.check_writable TO faultline_owner, faultline_producer, faultline_worker, faultline_reader;
