-- What is wrong with the id of a new job, in words for its producer, or NULL.
CREATE OR REPLACE FUNCTION faultline.id_problem(id uuid, bucket smallint)
RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT CASE WHEN id IS NULL OR faultline.bucket_of_id(id) <> bucket THEN
                     format('id %s is not of bucket %s', coalesce(id::text, 'NULL'), bucket) END
    $$;
