-- A result as it is stored. The limit is that of payloads, since a result is often the payload of what comes next.
CREATE OR REPLACE FUNCTION faultline.result_bytes(result jsonb) RETURNS bytea
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    bytes bytea := convert_to(result::text, 'UTF8');
    most  integer;
BEGIN
    SELECT m.payload_bytes_max INTO most FROM faultline.meta m WHERE m.bucket = 0;
    IF octet_length(bytes) > most THEN
        RAISE EXCEPTION 'the result has % bytes, the limit is %', octet_length(bytes), most
            USING ERRCODE = 'FL400', HINT = 'Store the data elsewhere and give a reference to it.';
    END IF;
    RETURN bytes;
END
$$;
