-- Bytes as JSON, or NULL if they are none. `json` and not `jsonb`: it holds whatever is JSON, as it was written;
-- `jsonb` has no \u0000, and a job that a claim cannot show would be in the way of all others.
CREATE OR REPLACE FUNCTION faultline.json_or_null(bytes bytea) RETURNS json
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
BEGIN
    RETURN convert_from(bytes, 'UTF8')::json;
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    RETURN NULL;
END
$$;
