-- The worker that a lease was granted to, for the evidence: the claim's name for it, whoever sends it now. Where it was
-- never granted, or is forgotten, the login that sends it.
CREATE OR REPLACE FUNCTION faultline.lease_holder(in_bucket smallint, job uuid, token bigint, lease_id uuid)
    RETURNS text LANGUAGE plpgsql STABLE
    AS $$
#variable_conflict use_variable
DECLARE
    holder text;
BEGIN
    SELECT j.worker INTO holder FROM faultline.jobs j
     WHERE j.bucket = in_bucket AND j.id = job AND j.token = token AND j.lease_id = lease_id;
    IF holder IS NULL THEN
        SELECT l.worker INTO holder FROM faultline.ledger l
         WHERE l.bucket = in_bucket AND l.job_id = job AND l.token = token AND l.lease_id = lease_id;
    END IF;
    RETURN coalesce(holder, session_user::text);
END
$$;
