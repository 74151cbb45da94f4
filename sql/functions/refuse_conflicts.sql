-- Ends a transaction that has submitted keys of other people's jobs (FL409): after enqueue_jobs, for a producer whose jobs
-- are added all or none. DETAIL has the job that the first such key belongs to.
CREATE OR REPLACE FUNCTION faultline.refuse_conflicts(in_bucket smallint, in_queue text, in_keys text[], in_fingerprints bytea[])
RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    owner record;
BEGIN
    SELECT n.key, k.job_id INTO owner
      FROM unnest(in_keys, in_fingerprints) AS n(key, fingerprint)
     CROSS JOIN LATERAL (
           SELECT i.job_id, i.fingerprint FROM faultline.idempotency_keys i
            WHERE i.bucket = in_bucket AND i.queue = in_queue AND i.key = n.key LIMIT 1) AS k
     WHERE k.fingerprint <> n.fingerprint
     LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'idempotency key % belongs to job %, which has another kind or payload',
            quote_literal(owner.key), owner.job_id
            USING ERRCODE = 'FL409', DETAIL = owner.job_id, HINT = 'A key names one piece of work: use another one for this.';
    END IF;
END
$$;
GRANT EXECUTE ON FUNCTION faultline.refuse_conflicts TO faultline_owner, faultline_producer, faultline_worker;
