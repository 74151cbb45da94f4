-- Four roles with least privilege, as groups: GRANT faultline_worker TO the login that runs workers.
--   faultline_owner     owns the schema; migrates, changes queues, requeues and cancels
--   faultline_producer  adds jobs, and reads what became of them
--   faultline_worker    claims, renews and settles; appends to the ledger and cannot rewrite it
--   faultline_reader    looks
-- Roles belong to the whole server and may be there already, made for another database or at this very
-- moment by another migration.
DO $$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['faultline_owner', 'faultline_producer', 'faultline_worker', 'faultline_reader']
    LOOP
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

GRANT INSERT ON faultline.jobs, faultline.tallies TO faultline_producer, faultline_worker;
GRANT INSERT, UPDATE ON faultline.idempotency_keys TO faultline_producer, faultline_worker;
GRANT DELETE ON faultline.jobs TO faultline_producer;

GRANT EXECUTE ON FUNCTION faultline.clock_now(), faultline.still_in_time(timestamptz),
      faultline.state_after_failure(integer, integer, bigint),
      faultline.backoff(uuid, bigint, integer, integer, integer),
      faultline.prune_finished(smallint, bigint)
   TO faultline_owner, faultline_worker;
-- A worker changes what a lease changes. What a job is (queue, kind, payload, options) it cannot.
GRANT UPDATE (state, token, attempt, run_at, worker, lease_id, lease_expires_at, claimed_at, last_error,
              progress, progress_note, cancel_requested_at, cancel_reason, requeues), DELETE
   ON faultline.jobs TO faultline_worker;
GRANT INSERT ON faultline.ledger, faultline.stale_writes TO faultline_worker;
GRANT INSERT, UPDATE ON faultline.effects TO faultline_worker;
GRANT INSERT, UPDATE, DELETE ON faultline.grants TO faultline_worker;
GRANT UPDATE (updated_at) ON faultline.queues TO faultline_worker;
GRANT DELETE ON faultline.tallies, faultline.idempotency_keys TO faultline_worker;

GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA faultline TO faultline_owner;
REVOKE UPDATE ON faultline.ledger FROM faultline_owner;
