-- Four roles with least privilege, as groups: GRANT faultline_worker TO the login that runs workers.
--   faultline_owner     operates: all verbs, and alone to change queues, requeue, cancel and purge
--   faultline_producer  adds jobs, and reads what became of them
--   faultline_worker    claims, renews and settles, and adds jobs
--   faultline_reader    looks
-- Each may read the tables, but the owner alone the lease ids in them, and call its verbs, which are functions with the rights of the login that migrates, and which
-- check what they are given. None may write to a table of jobs: what a verb does not do cannot be done. Who may call
-- which stands with the functions (sql/functions/).
--
-- Roles belong to the whole server and may be there already, made for another database (then this login need not be
-- allowed to make roles) or at this very moment by another migration.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['faultline_owner', 'faultline_producer', 'faultline_worker', 'faultline_reader']
    LOOP
        CONTINUE WHEN EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = role_name);
        BEGIN
            EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;
        END;
    END LOOP;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA faultline FROM PUBLIC;
GRANT USAGE ON SCHEMA faultline
   TO faultline_owner, faultline_producer, faultline_worker, faultline_reader;
GRANT EXECUTE ON FUNCTION faultline.clock(), faultline.shown_state(faultline.job_state, timestamptz)
   TO faultline_owner, faultline_producer, faultline_worker, faultline_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA faultline
   TO faultline_owner, faultline_producer, faultline_worker, faultline_reader;

-- Whoever knows a lease id can write in its holder's name, and the jobs of one claim share theirs, so that one of an ended
-- attempt may still be good for others. Of a table that has lease ids, roles but the owner may read the other columns, and
-- the view seen_TABLE, which has in its place a mark by which two can be told to be the same, and no more.
DO $$
DECLARE
    seen       record;
    role_names text := 'faultline_producer, faultline_worker, faultline_reader';
BEGIN
    FOR seen IN
        SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
          FROM pg_catalog.pg_class c
          JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = 'faultline'::regnamespace AND c.relkind = 'r' AND a.attname <> 'lease_id'
           AND EXISTS (SELECT FROM pg_catalog.pg_attribute l WHERE l.attrelid = c.oid AND l.attname = 'lease_id')
         GROUP BY c.relname
    LOOP
        EXECUTE format('REVOKE SELECT ON faultline.%I FROM %s', seen.name, role_names);
        EXECUTE format('GRANT SELECT (%s) ON faultline.%I TO %s', seen.columns, seen.name, role_names);
        EXECUTE format('CREATE VIEW faultline.%I AS SELECT %s, lease_id IS NOT NULL AS has_lease,'
                       ' left(encode(sha256(uuid_send(lease_id)), ''hex''), 16) AS lease_mark FROM faultline.%I', 'seen_' || seen.name, seen.columns, seen.name);
        EXECUTE format('GRANT SELECT ON faultline.%I TO faultline_owner, %s', 'seen_' || seen.name, role_names);
    END LOOP;
END
$$;
