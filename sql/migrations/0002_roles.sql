-- Four roles with least privilege, as groups: GRANT faultline_worker TO the login that runs workers.
--   faultline_owner     operates: all verbs, and alone to change queues, requeue, cancel and purge
--   faultline_producer  adds jobs, and reads what became of them
--   faultline_worker    claims, renews and settles, and adds jobs
--   faultline_reader    looks
-- Each may read the tables and call its verbs, which are functions with the rights of the login that migrates, and which
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
