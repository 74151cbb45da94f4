-- A version 7 UUID: 48 bits of milliseconds, then random bits, and the bucket in the last two bytes, so
-- that an id alone says where its row is.
CREATE OR REPLACE FUNCTION faultline.new_id(in_bucket smallint) RETURNS uuid
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS $$
    SELECT encode(
        set_byte(set_byte(
            overlay(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6)
                PLACING int2send(in_bucket) FROM 15 FOR 2),
            6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112),
            8, (get_byte(uuid_send(gen_random_uuid()), 8) & 63) | 128), 'hex')::uuid
    $$;
