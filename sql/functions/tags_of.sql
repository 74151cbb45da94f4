-- The tags in the text of a JSON array.
CREATE OR REPLACE FUNCTION faultline.tags_of(tags text)
RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    IF jsonb_typeof(tags::jsonb) <> 'array' THEN
        RAISE EXCEPTION 'tags are a JSON array, not %', tags USING ERRCODE = 'FL400';
    END IF;
    RETURN ARRAY(SELECT jsonb_array_elements_text(tags::jsonb));
END
$$;
