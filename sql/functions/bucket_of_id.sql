-- The bucket that an id was made for: its last two bytes.
CREATE OR REPLACE FUNCTION faultline.bucket_of_id(id uuid) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    -- A version 7 id of ours has at most 4095 here; what is larger is of no bucket.
    SELECT least(get_byte(uuid_send(id), 14) * 256 + get_byte(uuid_send(id), 15), 32767)::smallint
    $$;
