-- The bucket of a lease that a worker sends, or FL400 where it cannot be one.
CREATE OR REPLACE FUNCTION faultline.lease_bucket(job uuid, token bigint, lease_id uuid) RETURNS smallint
    LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_variable
BEGIN
    IF job IS NULL OR lease_id IS NULL OR token IS NULL OR token <= 0
       OR NOT EXISTS (SELECT FROM faultline.meta m WHERE m.bucket = faultline.bucket_of_id(job)) THEN
        RAISE EXCEPTION 'this is no lease: job %, token %, lease_id %',
            coalesce(job::text, 'NULL'), coalesce(token::text, 'NULL'), coalesce(lease_id::text, 'NULL')
            USING ERRCODE = 'FL400', HINT = 'Give id, token and lease_id as faultline.claim returned them.';
    END IF;
    RETURN faultline.bucket_of_id(job);
END
$$;
