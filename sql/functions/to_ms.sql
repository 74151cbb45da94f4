-- An interval in milliseconds, as the batch forms take it.
CREATE OR REPLACE FUNCTION faultline.to_ms(how_long interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT (extract(epoch FROM how_long) * 1000)::bigint$$;
