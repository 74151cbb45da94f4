-- Ends an attempt with success, or makes it impossible to commit the transaction: for work whose own writes are in the same
-- transaction. A caller that forgets to look at the status of faultline.complete would commit them under a stale lease;
-- this one raises FL410 unless the attempt ends here and now.
--
-- So it does for `repeated`: the transaction that ended the attempt has committed its writes, and this one would write
-- them a second time. DETAIL is that word, or the reason why the lease is stale.
--
-- The rollback takes the evidence along. A worker whose lease is stale calls faultline.check after it, which keeps it.
CREATE OR REPLACE FUNCTION faultline.complete_or_abort(job uuid, token bigint, lease_id uuid, result jsonb DEFAULT NULL)
RETURNS void
    /*verb*/
    AS $$
#variable_conflict use_variable
DECLARE
    verdict record;
BEGIN
    SELECT c.* INTO verdict FROM faultline.complete(job, token, lease_id, result) AS c;
    IF verdict.status = 'repeated' THEN
        RAISE EXCEPTION 'job % was completed before under this lease, together with what was written then', job
            USING ERRCODE = 'FL410', DETAIL = 'repeated',
                  HINT = 'Roll back: nothing is left to do.';
    ELSIF verdict.status <> 'committed' THEN
        RAISE EXCEPTION 'the lease on job % with token % is stale (%): the job is %, its token is %, its holder is %',
            job, token, verdict.reason, coalesce(verdict.current_state, 'unknown'),
            coalesce(verdict.current_token::text, 'unknown'), coalesce(verdict.current_worker, 'nobody')
            USING ERRCODE = 'FL410', DETAIL = verdict.reason,
                  HINT = 'Roll back and drop the job. SELECT * FROM faultline.check(job, token, lease_id) keeps the evidence.';
    END IF;
END
$$;
COMMENT ON FUNCTION faultline.complete_or_abort IS
    'Ends an attempt with success together with the caller''s own writes, or raises FL410 so that none of them commit.';
GRANT EXECUTE ON FUNCTION faultline.complete_or_abort TO faultline_owner, faultline_worker;
