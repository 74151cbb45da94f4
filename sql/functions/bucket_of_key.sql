-- The bucket of a keyed job comes from its key, so that one key has one place.
CREATE OR REPLACE FUNCTION faultline.bucket_of_key(in_queue text, in_key text, buckets smallint) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT (('x' || encode(substring(sha256(convert_to(in_queue || chr(1) || in_key, 'UTF8')) FROM 1 FOR 4), 'hex'))
            ::bit(32)::bigint % buckets)::smallint
    $$;
