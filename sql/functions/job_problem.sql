-- What is wrong with a new job, in words for its producer, or NULL; kind_problem says it of its kind and options_problem of
-- its options.
--
-- One expression in SQL, which becomes part of the expression that asks: a call would take longer than the check. So it
-- holds no sub-select, and names each parameter that is dear to compute once.
CREATE OR REPLACE FUNCTION faultline.job_problem(payload bytea, payload_bytes_max integer, priority smallint)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT CASE
        WHEN payload IS NULL THEN 'a payload is needed; give ''null'' or ''{}'' for none'
        WHEN octet_length(payload) > payload_bytes_max THEN
            format('the payload has %s bytes, the limit is %s; store the data elsewhere and enqueue a reference to it',
                   octet_length(payload), payload_bytes_max)
        WHEN priority IS NULL OR priority NOT BETWEEN 0 AND 9 THEN 'a priority is 0 (first) to 9 (last)'
    END
    $$;
