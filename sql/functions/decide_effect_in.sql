-- Puts on record what a person found out about an effect that was begun and never recorded, so that the job can go on: it
-- happened, and gave in_result, which the next attempt gets instead of running it; or it did not, and the next attempt
-- runs it. Who said so, when and why stays beside it.
--
--   decided     by this call, or by an earlier one that said the same
--   otherwise   it was decided before, and differently: that stands
--   recorded    its attempt has recorded what it gave: there is nothing to decide
--   changed     it was begun anew since, under another token: look again
--   running     an attempt is under way, and may be doing it right now: wait for its end, or cancel the job
--   not_found   no such effect was begun, or it was taken back
--
-- in_token is the one under which the effect was begun; NULL: that of the effect on record now. A message that names it and
-- is delivered late decides nothing about what was begun since, and one that comes twice finds what it did. While a job
-- runs nothing can be decided, so an announcement is decided once: the next one has a higher token.
CREATE OR REPLACE FUNCTION faultline.decide_effect_in(
    in_bucket smallint, in_id uuid, in_key text, in_token bigint, in_happened boolean, in_result bytea, in_who text,
    in_reason text)
RETURNS text
    /*verb*/
    AS $$
#variable_conflict use_column
DECLARE
    time_now timestamptz;
    live     faultline.job_state;
    effect   faultline.effects;
    earlier  faultline.effect_decisions;
    begun_under bigint;
BEGIN
    IF in_id IS NULL OR in_key IS NULL OR in_happened IS NULL OR coalesce(in_who, '') = '' THEN
        RAISE EXCEPTION 'a decision has a job, the key of an effect, whether it happened, and who says so'
            USING ERRCODE = 'FL400';
    END IF;
    IF coalesce(in_reason, '') = '' THEN
        RAISE EXCEPTION 'a decision has a reason: how it is known whether the effect happened' USING ERRCODE = 'FL400';
    END IF;
    IF NOT in_happened AND in_result IS NOT NULL THEN
        RAISE EXCEPTION 'an effect that did not happen gave nothing' USING ERRCODE = 'FL400';
    END IF;
    -- As a requeue does: so that neither a worker nor a prune does anything to the job meanwhile.
    PERFORM FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = in_id FOR UPDATE;
    PERFORM FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = in_id ORDER BY l.token DESC LIMIT 1 FOR UPDATE;
    time_now := faultline.clock_now();
    SELECT j.state INTO live FROM faultline.jobs j WHERE j.bucket = in_bucket AND j.id = in_id;
    SELECT e.* INTO effect FROM faultline.effects e WHERE e.bucket = in_bucket AND e.job_id = in_id AND e.key = in_key;
    begun_under := coalesce(in_token, effect.token);
    SELECT d.* INTO earlier FROM faultline.effect_decisions d
     WHERE d.bucket = in_bucket AND d.job_id = in_id AND d.key = in_key AND d.token = begun_under;
    IF earlier.job_id IS NOT NULL THEN
        RETURN CASE WHEN earlier.happened = in_happened AND (NOT in_happened OR effect.result = coalesce(in_result, ''))
                    THEN 'decided' ELSE 'otherwise' END;
    ELSIF effect.job_id IS NULL OR effect.forgotten_at IS NOT NULL THEN
        RETURN 'not_found';
    ELSIF effect.token <> begun_under THEN
        RETURN 'changed';
    ELSIF effect.recorded_at IS NOT NULL THEN
        RETURN 'recorded';
    ELSIF live = 'running' THEN
        RETURN 'running';
    END IF;
    INSERT INTO faultline.effect_decisions (bucket, job_id, key, token, happened, decided_at, decided_by, reason)
    VALUES (in_bucket, in_id, in_key, begun_under, in_happened, time_now, in_who, in_reason);
    UPDATE faultline.effects e
       SET recorded_at = CASE WHEN in_happened THEN time_now END,
           result = CASE WHEN in_happened THEN coalesce(in_result, '') END,
           forgotten_at = CASE WHEN NOT in_happened THEN time_now END
     WHERE e.bucket = in_bucket AND e.job_id = in_id AND e.key = in_key;
    RETURN 'decided';
END
$$;
GRANT EXECUTE ON FUNCTION faultline.decide_effect_in TO faultline_owner;
