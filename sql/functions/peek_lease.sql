-- Whether a lease is the current one and has not run out, at this moment: for an attempt that is about to begin
-- something large. Answers with the job's id, or with nothing. Locks nothing and decides nothing; what counts is the
-- statement that ends the attempt.
CREATE OR REPLACE FUNCTION faultline.peek_lease(in_bucket smallint, in_id uuid, in_token bigint, in_lease_id uuid)
RETURNS TABLE (id uuid)
    /*verb*/
    AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT j.id
      FROM faultline.jobs j
     WHERE j.bucket = in_bucket AND j.id = in_id AND j.token = in_token AND j.lease_id = in_lease_id
       AND j.lease_expires_at > faultline.clock_now();
END
$$;
GRANT EXECUTE ON FUNCTION faultline.peek_lease TO faultline_owner, faultline_worker;
