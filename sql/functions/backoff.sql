-- Exponential, capped, and less up to half at random, so that jobs that failed together do not come back
-- together. The randomness is a hash of job and token, so that the same failure always waits the same time.
CREATE OR REPLACE FUNCTION faultline.backoff(job uuid, token bigint, attempt integer, base_ms integer, max_ms integer)
    RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT least(max_ms, base_ms * power(2, least(greatest(attempt, 1), 32) - 1))
           * (1 - (uuid_hash_extended(job, token) & 1023) / 2046.0) * interval '1 millisecond'
    $$;
