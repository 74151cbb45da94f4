-- What must be the same under the same idempotency key: SHA-256 over kind, encoding and payload.
CREATE OR REPLACE FUNCTION faultline.fingerprint(kind text, encoding faultline.encoding, payload bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT sha256(convert_to(kind, 'UTF8') || '\x00'::bytea
                  || CASE encoding WHEN 'json' THEN '\x6a'::bytea ELSE '\x62'::bytea END || payload)
    $$;
