-- The least id that a job made at this time can have: ids begin with the milliseconds of their making.
CREATE OR REPLACE FUNCTION faultline.first_id(made_at timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT (lpad(to_hex(greatest(0, extract(epoch FROM made_at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
    $$;
