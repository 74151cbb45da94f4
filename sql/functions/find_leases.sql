-- What became of attempts, by their leases: the ledger's word on a settlement whose answer was lost. A lease that ended no
-- attempt has no row in the answer. It is a function because no role may read lease ids: only who knows one is told.
CREATE OR REPLACE FUNCTION faultline.find_leases(
    in_bucket smallint, in_ids uuid[], in_tokens bigint[], in_lease_ids uuid[])
RETURNS TABLE (id uuid, outcome faultline.outcome)
    /*verb*/
    AS $$
#variable_conflict use_column
BEGIN
    IF coalesce(cardinality(in_ids), 1001) > 1000 OR cardinality(in_tokens) IS DISTINCT FROM cardinality(in_ids)
       OR cardinality(in_lease_ids) IS DISTINCT FROM cardinality(in_ids) THEN
        RAISE EXCEPTION 'the arrays of a call have one element per lease, and 1000 at most' USING ERRCODE = 'FL400';
    END IF;
    RETURN QUERY
    SELECT l.job_id, l.outcome
      FROM unnest(in_ids, in_tokens, in_lease_ids) AS mine(id, token, lease_id)
     CROSS JOIN LATERAL (
           SELECT t.job_id, t.outcome FROM faultline.ledger t
            WHERE t.bucket = in_bucket AND t.job_id = mine.id AND t.token = mine.token
              AND t.lease_id = mine.lease_id LIMIT 1) AS l;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.find_leases TO faultline_owner, faultline_worker;
