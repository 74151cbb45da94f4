-- What is wrong with the tags of a new job, in words for its producer, or NULL.
CREATE OR REPLACE FUNCTION faultline.tags_problem(tags text[])
RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
BEGIN
    IF array_ndims(tags) > 1 OR cardinality(tags) > 32
       OR EXISTS (SELECT FROM unnest(tags) AS t(tag)
                   WHERE t.tag IS NULL OR octet_length(t.tag) NOT BETWEEN 1 AND 128 OR t.tag ~ '[[:cntrl:]]') THEN
        RETURN 'there are at most 32 tags, each of 1 to 128 bytes and without control characters';
    END IF;
    RETURN NULL;
END
$$;
