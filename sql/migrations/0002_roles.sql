-- Four roles with least privilege, as groups: GRANT faultline_worker TO the login that runs workers.
--   faultline_owner     operates: all verbs, and alone to change queues, requeue, cancel and purge
--   faultline_producer  adds jobs, and reads what became of them
--   faultline_worker    claims, renews and settles, and adds jobs; appends to the ledger and cannot rewrite it
--   faultline_reader    looks
-- The tables belong to the login that migrates. Roles belong to the whole server and may be there already, made
-- for another database (then this login need not be allowed to make roles) or at this very moment by another
-- migration.
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

-- A new job waits, has no token and no lease: whoever adds one cannot say otherwise.
GRANT INSERT (bucket, id, queue, kind, payload, encoding, priority, run_at, attempts_max, lease_ttl_ms, run_max_ms,
              backoff_base_ms, backoff_max_ms, delivery, tags, traceparent, idempotency_key)
   ON faultline.jobs TO faultline_producer, faultline_worker;
GRANT INSERT (bucket, queue, available) ON faultline.tallies TO faultline_producer;
GRANT INSERT, UPDATE (job_id, fingerprint, created_at, expires_at)
   ON faultline.idempotency_keys TO faultline_producer, faultline_worker;
GRANT EXECUTE ON FUNCTION faultline.hold_finished(smallint, uuid[]), faultline.purge_dead(smallint, uuid[], text)
   TO faultline_owner;
GRANT EXECUTE ON FUNCTION faultline.drop_resubmitted(smallint, uuid[])
   TO faultline_owner, faultline_producer, faultline_worker;

GRANT EXECUTE ON FUNCTION faultline.clock_now(), faultline.still_in_time(timestamptz),
      faultline.state_after_failure(integer, integer, bigint),
      faultline.backoff(uuid, bigint, integer, integer, integer),
      faultline.prune_finished(smallint, bigint)
   TO faultline_owner, faultline_worker;
-- A worker changes what a lease changes. What a job is (queue, kind, payload, options), and what an operator
-- decides of it (cancel, requeue), it cannot.
GRANT UPDATE (state, token, attempt, run_at, worker, lease_id, lease_expires_at, claimed_at, last_error,
              progress, progress_note), DELETE
   ON faultline.jobs TO faultline_worker;
GRANT INSERT ON faultline.ledger, faultline.stale_writes TO faultline_worker;
GRANT INSERT, UPDATE (token, lease_id, worker, recorded_at, result), DELETE
   ON faultline.effects TO faultline_worker;
GRANT INSERT, UPDATE (check_at), DELETE ON faultline.grants TO faultline_worker;
GRANT UPDATE (claim_turn) ON faultline.queues TO faultline_worker;
GRANT INSERT, DELETE ON faultline.tallies TO faultline_worker;
GRANT DELETE ON faultline.idempotency_keys TO faultline_worker;

GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA faultline TO faultline_owner;
-- The past is nobody's to rewrite.
REVOKE UPDATE ON faultline.ledger, faultline.stale_writes FROM faultline_owner;
REVOKE INSERT, UPDATE, DELETE ON faultline.migrations FROM faultline_owner;
