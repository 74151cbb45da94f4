-- Puts on record, in the name of the login, what a person found out about an effect that was begun and never recorded: it
-- happened, and gave this result, or it did not. `token` is the one under which it was begun; without one, whatever is on
-- record now is meant. Answers `decided`, `otherwise`, `recorded`, `changed`, `running` or `not_found`.
CREATE OR REPLACE FUNCTION faultline.decide_effect(
    job uuid, key text, happened boolean, reason text, result jsonb DEFAULT NULL, token bigint DEFAULT NULL)
RETURNS text
    /*verb*/
    AS $$
#variable_conflict use_variable
BEGIN
    RETURN faultline.decide_effect_in(
        faultline.bucket_of_id(job), job, key, token, happened, faultline.result_bytes(result), session_user::text, reason);
END
$$;
COMMENT ON FUNCTION faultline.decide_effect IS
    'Says of an effect that was begun and never recorded whether it happened: `decided`, `otherwise`, `recorded`, `changed`, `running` or `not_found`.';
GRANT EXECUTE ON FUNCTION faultline.decide_effect TO faultline_owner;
