-- What is wrong with the kind of a new job, in words for its producer, or NULL.
CREATE OR REPLACE FUNCTION faultline.kind_problem(kind text)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN kind IS NULL OR octet_length(kind) NOT BETWEEN 1 AND 128 OR kind ~ '[[:cntrl:]]' THEN
                     'a kind has 1 to 128 bytes and no control characters' END
    $$;
