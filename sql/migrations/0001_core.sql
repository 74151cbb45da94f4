-- The core: queues, jobs with their leases, the ledger of ended attempts, effects, idempotency keys
-- and the evidence of stale writes.
--
-- How it works, in six points:
--   1. `jobs` holds live jobs only. A job that finishes leaves it and becomes a ledger row, so the hot
--      table and its indexes stay as small as the backlog.
--   2. The lease lives on the job row. A running row without a lease cannot exist: a CHECK says so.
--      A claim is one update of that row, and writes to no index.
--   3. Every claim raises `token`. So does every act of an operator on a job (cancel, requeue), so
--      that each ledger row has a token of its own.
--   4. The fence is the pair (token, lease_id). Every write of a worker carries it.
--   5. All time comes from faultline.clock(). Nothing else in this schema or its statements reads a clock.
--   6. `bucket` leads every key and stands on every table reference, so that the same statements run
--      on an engine that shards by it. A single server has one bucket, 0.

CREATE SCHEMA IF NOT EXISTS faultline;

-- The clock of the whole protocol: the time of the statement. STABLE and a single expression, so the
-- planner inlines it and it costs nothing. Drills replace it, and clock_now(), by one they can move.
CREATE FUNCTION faultline.clock() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp()';

-- This very moment, for the one question that the statement's time cannot answer: did a lease run out
-- while the statement waited for a row?
CREATE FUNCTION faultline.clock_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp()';

-- Every fenced statement ends with this, when it holds its row locks. A statement that waited for a
-- lock has judged its leases by the time before the wait; if the first of them has run out since, the
-- whole unit is undone and the store judges each lease anew.
CREATE FUNCTION faultline.still_in_time(first_expiry timestamptz) RETURNS boolean
    LANGUAGE plpgsql VOLATILE
    AS $$
BEGIN
    IF first_expiry <= faultline.clock_now() THEN
        RAISE EXCEPTION 'a lease expired while its write waited for a lock' USING ERRCODE = 'FL001';
    END IF;
    RETURN true;
END
$$;

-- 'available' holds what is due and what is scheduled: which of the two is a matter of run_at and the
-- clock, not of a stored state that somebody would have to change when the time comes.
CREATE TYPE faultline.job_state AS ENUM ('available', 'running', 'held', 'dead', 'succeeded', 'cancelled');

-- How an attempt, or an operator's act, ended.
CREATE TYPE faultline.outcome AS ENUM
    ('succeeded', 'failed', 'buried', 'snoozed', 'released', 'expired', 'cancelled', 'requeued', 'purged');

-- What becomes of a job whose lease runs out: another attempt, the dead letters, or a person's decision.
CREATE TYPE faultline.delivery AS ENUM ('at_least_once', 'at_most_once', 'hold');

CREATE TYPE faultline.stale_reason AS ENUM ('token_mismatch', 'lease_expired', 'already_settled', 'cancelled');

-- How a payload is to be read. It is stored as the bytes that came in either case.
CREATE TYPE faultline.encoding AS ENUM ('json', 'bytes');

-- One row per bucket: what was fixed when the schema was made, limits that SQL producers share, and which
-- libraries this schema serves.
CREATE TABLE faultline.meta (
    bucket            smallint PRIMARY KEY,
    buckets           smallint NOT NULL CHECK (buckets BETWEEN 1 AND 4096),
    payload_bytes_max integer  NOT NULL DEFAULT 1048576 CHECK (payload_bytes_max > 0),
    -- The oldest schema version whose libraries still work on this schema. A library that is older than the schema
    -- works on it if its own version is not below this one. A migration that breaks older libraries raises it.
    speaks_from       integer  NOT NULL DEFAULT 1 CHECK (speaks_from > 0),
    CHECK (bucket >= 0 AND bucket < buckets)
);

CREATE TABLE faultline.queues (
    bucket           smallint    NOT NULL,
    name             text        COLLATE "C" NOT NULL,
    paused           boolean     NOT NULL DEFAULT false,
    -- The most jobs that may run at once; NULL: no cap.
    running_max      integer     CHECK (running_max >= 0),
    lease_ttl_ms     integer     NOT NULL DEFAULT 30000 CHECK (lease_ttl_ms BETWEEN 100 AND 86400000),
    attempts_max     integer     NOT NULL DEFAULT 20 CHECK (attempts_max BETWEEN 1 AND 1000000),
    -- The n-th retry waits min(backoff_max, backoff_base * 2^(n-1)), less up to half of it at random.
    backoff_base_ms  integer     NOT NULL DEFAULT 1000 CHECK (backoff_base_ms BETWEEN 0 AND 86400000),
    backoff_max_ms   integer     NOT NULL DEFAULT 3600000 CHECK (backoff_max_ms BETWEEN 0 AND 604800000),
    -- How long finished jobs are kept, and how much longer than its job an idempotency key lives.
    retention_ms     bigint      NOT NULL DEFAULT 604800000 CHECK (retention_ms >= 0),
    key_retention_ms bigint      NOT NULL DEFAULT 86400000 CHECK (key_retention_ms >= 0),
    created_at       timestamptz NOT NULL DEFAULT faultline.clock(),
    updated_at       timestamptz NOT NULL DEFAULT faultline.clock(),
    -- Says nothing. It is the one column that workers may update, because only who may update a column of a
    -- row may lock it.
    claim_turn       boolean     NOT NULL DEFAULT false,
    PRIMARY KEY (bucket, name),
    CHECK (octet_length(name) BETWEEN 1 AND 128)
);

CREATE TABLE faultline.jobs (
    bucket           smallint    NOT NULL,
    -- 0 runs first, 9 last.
    priority         smallint    NOT NULL DEFAULT 5,
    -- Attempts begun; a snooze or a release gives one back. Never part of the fence.
    attempt          integer     NOT NULL DEFAULT 0,
    id               uuid        NOT NULL,
    -- The highest token minted for this job. It only ever grows.
    token            bigint      NOT NULL DEFAULT 0,
    -- 'infinity' for jobs that wait for a person (held, dead): after everything that is ever due.
    run_at           timestamptz NOT NULL DEFAULT faultline.clock(),
    created_at       timestamptz NOT NULL DEFAULT faultline.clock(),
    claimed_at       timestamptz,
    lease_expires_at timestamptz,
    lease_id         uuid,
    state            faultline.job_state NOT NULL DEFAULT 'available',
    delivery         faultline.delivery  NOT NULL DEFAULT 'at_least_once',
    encoding         faultline.encoding  NOT NULL DEFAULT 'json',
    -- How often the job was requeued: it may finish once per requeue, and no more.
    requeues         integer     NOT NULL DEFAULT 0,
    -- Options of the job; NULL: as the queue says.
    attempts_max     integer,
    lease_ttl_ms     integer,
    run_max_ms       bigint,
    backoff_base_ms  integer,
    backoff_max_ms   integer,
    cancel_requested_at timestamptz,
    queue            text        COLLATE "C" NOT NULL,
    kind             text        COLLATE "C" NOT NULL,
    payload          bytea       NOT NULL,
    worker           text        COLLATE "C",
    idempotency_key  text        COLLATE "C",
    tags             text[],
    -- The trace that the job belongs to, as W3C writes it.
    traceparent      text        COLLATE "C",
    cancel_reason    text,
    last_error       text,
    progress         double precision,
    progress_note    text,
    PRIMARY KEY (bucket, id),
    -- The store checks ranges before they come here. These two are the protocol itself.
    CONSTRAINT running_has_a_lease_and_nothing_else_has CHECK (
        CASE WHEN state = 'running'
             THEN lease_id IS NOT NULL AND lease_expires_at IS NOT NULL AND worker IS NOT NULL
                  AND claimed_at IS NOT NULL AND token > 0
             ELSE lease_id IS NULL AND lease_expires_at IS NULL AND worker IS NULL
                  AND claimed_at IS NULL AND state IN ('available', 'held', 'dead')
        END),
    -- A job without a token left can never be claimed again: it must not pretend to wait.
    CONSTRAINT an_available_job_has_a_token_left CHECK (state <> 'available' OR token < 9223372036854775807)
)
-- Three fifths of each page are left free. A claim makes the row half as large again, and its new version is
-- to stay on the page and so to write to no index (a heap-only update); a heartbeat's, too, once the version
-- before the claim is tidied away. That is also why no index here, and no index's predicate, may name a column
-- that a claim or a heartbeat changes: state, token, attempt, worker, lease_*, claimed_at.
WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_cost_delay = 0);

-- The claim walks this index and nothing else. Scheduled, held and dead jobs are in it too: they sort
-- after the due ones of their priority, and the scan ends before it reaches them.
--
-- Every row is in it; the predicate is there for the planner, which may use this index only for a statement
-- that says `priority >= 0`. All others look jobs up by primary key, and on a table that looks empty the two
-- indexes would seem equally good.
CREATE INDEX jobs_due ON faultline.jobs (bucket, queue, priority, run_at, id) WHERE priority >= 0;

-- Where the watchdog looks: one row per claim, naming the jobs it took. It grants nothing (the lease
-- is on the job row); it says which rows to look at, and when, so that neither a claim nor a heartbeat
-- has to write to an index of expiries.
CREATE TABLE faultline.grants (
    bucket     smallint    NOT NULL,
    -- No lease of this claim can have expired before.
    check_at   timestamptz NOT NULL,
    lease_id   uuid        NOT NULL,
    job_ids    uuid[]      NOT NULL,
    PRIMARY KEY (bucket, check_at, lease_id)
)
WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE faultline.grants ALTER COLUMN job_ids SET STORAGE EXTERNAL;

-- Ended attempts and operators' acts, append-only. The row that finishes a job carries the job whole.
CREATE TABLE faultline.ledger (
    bucket           smallint    NOT NULL,
    attempt          integer     NOT NULL,
    outcome          faultline.outcome   NOT NULL,
    job_id           uuid        NOT NULL,
    token            bigint      NOT NULL,
    -- NULL for an act on a job that nobody held.
    lease_id         uuid,
    started_at       timestamptz,
    ended_at         timestamptz NOT NULL DEFAULT faultline.clock(),
    -- Where the job went with this row. A finished job is here and not in `jobs`.
    state            faultline.job_state NOT NULL,
    requeues         integer     NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    -- The worker that held the lease, or who acted.
    worker           text        COLLATE "C",
    error            text,
    result           bytea,
    -- From here on set only when the job finished: enough to show it, and to requeue it.
    priority         smallint,
    delivery         faultline.delivery,
    encoding         faultline.encoding,
    attempts_max     integer,
    lease_ttl_ms     integer,
    run_max_ms       bigint,
    backoff_base_ms  integer,
    backoff_max_ms   integer,
    run_at           timestamptz,
    created_at       timestamptz,
    kind             text        COLLATE "C",
    idempotency_key  text        COLLATE "C",
    tags             text[],
    traceparent      text        COLLATE "C",
    payload          bytea,
    -- Set when the outcome was sent again because its answer was lost, and nothing of it had been committed: the first
    -- sending may still be on its way, and is no stale write when it comes. NULL, which takes no room, everywhere else.
    resent           boolean,
    -- A second line of defence after the statements' guard: one ledger row per token of a job …
    PRIMARY KEY (bucket, job_id, token)
)
WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- … and one end per job and requeue. The queue of a job never changes, so having it here costs no
-- uniqueness, and the same index lists a queue's finished jobs in the order of their ids.
CREATE UNIQUE INDEX ledger_finished ON faultline.ledger (bucket, queue, job_id, requeues)
    WHERE state IN ('succeeded', 'cancelled');

CREATE TABLE faultline.effects (
    bucket      smallint    NOT NULL,
    job_id      uuid        NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    -- The fence under which the effect began, and was recorded.
    token       bigint      NOT NULL,
    lease_id    uuid        NOT NULL,
    worker      text        COLLATE "C" NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT faultline.clock(),
    -- NULL: it began and nobody knows how it ended.
    recorded_at timestamptz,
    result      bytea,
    PRIMARY KEY (bucket, job_id, key),
    CHECK (octet_length(key) BETWEEN 1 AND 256)
);

CREATE TABLE faultline.idempotency_keys (
    bucket       smallint    NOT NULL,
    queue        text        COLLATE "C" NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    job_id       uuid        NOT NULL,
    -- SHA-256 over kind, encoding and payload: what must be the same under the same key.
    fingerprint  bytea       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT faultline.clock(),
    -- NULL while the job lives.
    expires_at   timestamptz,
    PRIMARY KEY (bucket, queue, key),
    CHECK (octet_length(key) BETWEEN 1 AND 256)
);
CREATE INDEX idempotency_keys_expiring ON faultline.idempotency_keys (bucket, expires_at)
    WHERE expires_at IS NOT NULL;

-- The evidence: a write that carried a lease which was no longer the current one.
CREATE TABLE faultline.stale_writes (
    bucket        smallint    NOT NULL,
    job_id        uuid        NOT NULL,
    id            uuid        NOT NULL DEFAULT gen_random_uuid(),
    at            timestamptz NOT NULL DEFAULT faultline.clock(),
    verb          text        COLLATE "C" NOT NULL,
    reason        faultline.stale_reason NOT NULL,
    queue         text        COLLATE "C",
    -- What the late writer carried …
    token         bigint      NOT NULL,
    lease_id      uuid        NOT NULL,
    worker        text        COLLATE "C" NOT NULL,
    -- … and what was true of the job when it came; NULL where the job is not known at all.
    current_token    bigint,
    current_lease_id uuid,
    current_worker   text     COLLATE "C",
    current_state    faultline.job_state,
    lease_expired_at timestamptz,
    PRIMARY KEY (bucket, job_id, id)
);
CREATE INDEX stale_writes_by_time ON faultline.stale_writes (bucket, at);

-- How many jobs are where, as differences: every statement that moves jobs adds a row in its own
-- transaction, readers add them up, the watchdog folds them together. Counts are exact, cost no scan
-- of jobs, and no two transactions ever wait for one another over them.
CREATE TABLE faultline.tallies (
    bucket    smallint NOT NULL,
    queue     text     COLLATE "C" NOT NULL,
    available bigint   NOT NULL DEFAULT 0,
    running   bigint   NOT NULL DEFAULT 0,
    held      bigint   NOT NULL DEFAULT 0,
    dead      bigint   NOT NULL DEFAULT 0,
    succeeded bigint   NOT NULL DEFAULT 0,
    cancelled bigint   NOT NULL DEFAULT 0
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tallies_of_queue ON faultline.tallies (bucket, queue);

-- The one branch that every failure takes, reported or found by the watchdog: again, or dead when the
-- attempts, or the tokens, are used up.
CREATE FUNCTION faultline.state_after_failure(attempt integer, attempts_max integer, token bigint)
    RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT CASE WHEN attempt >= attempts_max OR token = 9223372036854775807 THEN 'dead' ELSE 'available' END$$;

-- Exponential, capped, and less up to half at random, so that jobs that failed together do not come back
-- together. The randomness is a hash of job and token: statements stay free of volatile functions.
CREATE FUNCTION faultline.backoff(job uuid, token bigint, attempt integer, base_ms integer, max_ms integer)
    RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$SELECT least(max_ms, base_ms * power(2, least(greatest(attempt, 1), 32) - 1))
              * (1 - (uuid_hash_extended(job, token) & 1023) / 2046.0) * interval '1 millisecond'$$;

-- What people call a job that is available: scheduled until its time has come.
CREATE FUNCTION faultline.shown_state(state faultline.job_state, run_at timestamptz)
    RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT CASE WHEN state = 'available' AND run_at > faultline.clock() THEN 'scheduled' ELSE state::text END$$;

-- Retires up to jobs_max finished jobs whose queue's retention has passed. Runs with the owner's rights
-- and deletes by that rule alone, so that a worker may call it and still cannot touch the ledger.
--
-- Two statements: the first locks each job's last row in the ledger, the second sees what is true under
-- that lock. A requeue locks the same row (hold_finished), so a job is retired or brought back, never both.
CREATE FUNCTION faultline.prune_finished(in_bucket smallint, jobs_max bigint) RETURNS bigint
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
DECLARE
    candidates uuid[];
    retired    bigint;
BEGIN
    candidates := ARRAY(
        SELECT f.job_id
          FROM faultline.queues q
         CROSS JOIN LATERAL (
               SELECT l.job_id
                 FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.queue = q.name AND l.state IN ('succeeded', 'cancelled')
                  AND l.ended_at < faultline.clock() - q.retention_ms * interval '1 millisecond'
                  AND NOT EXISTS (SELECT FROM faultline.ledger newer
                                   WHERE newer.bucket = in_bucket AND newer.job_id = l.job_id
                                     AND newer.token > l.token)
                ORDER BY l.job_id
                LIMIT jobs_max
                  FOR UPDATE SKIP LOCKED) AS f
         WHERE q.bucket = in_bucket
         LIMIT jobs_max);

    WITH old AS MATERIALIZED (
        SELECT last.job_id, last.queue, last.state
          FROM unnest(candidates) AS candidate(id)
         CROSS JOIN LATERAL (
               SELECT l.job_id, l.queue, l.state FROM faultline.ledger l
                WHERE l.bucket = in_bucket AND l.job_id = candidate.id
                ORDER BY l.token DESC LIMIT 1) AS last
         WHERE last.state IN ('succeeded', 'cancelled')
    ), gone AS (
        DELETE FROM faultline.ledger l USING old WHERE l.bucket = in_bucket AND l.job_id = old.job_id
    ), effects AS (
        DELETE FROM faultline.effects e USING old WHERE e.bucket = in_bucket AND e.job_id = old.job_id
    ), evidence AS (
        DELETE FROM faultline.stale_writes s USING old WHERE s.bucket = in_bucket AND s.job_id = old.job_id
    ), tallied AS (
        INSERT INTO faultline.tallies (bucket, queue, succeeded, cancelled)
        SELECT in_bucket, o.queue, -count(*) FILTER (WHERE o.state = 'succeeded'),
               -count(*) FILTER (WHERE o.state = 'cancelled')
          FROM old o GROUP BY o.queue
    )
    SELECT count(*) INTO retired FROM old;
    RETURN retired;
END
$$;

-- Locks the last ledger rows of finished jobs, so that they are not retired while they are brought back. The
-- owner's rights, because only who may update the ledger may lock its rows, and nobody may.
CREATE FUNCTION faultline.hold_finished(in_bucket smallint, ids uuid[]) RETURNS bigint
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    SELECT count(*)
      FROM (SELECT l.job_id FROM faultline.ledger l
             WHERE l.bucket = in_bucket AND l.job_id = ANY (ids) AND l.state IN ('succeeded', 'cancelled')
             ORDER BY l.job_id, l.token
               FOR UPDATE) AS held
    $$;

-- Ends dead jobs for good, as a recorded act with a token of its own: the ledger keeps who did it and what
-- became of every attempt, until the queue's retention has passed; the payload goes at once. Jobs that are not
-- dead come back with `purged` false and are left alone. A function, because a worker's rights on the tables
-- would be enough for this, and it is an operator's decision.
CREATE FUNCTION faultline.purge_dead(in_bucket smallint, ids uuid[], who text)
    RETURNS TABLE (job_id uuid, purged boolean, exhausted boolean)
    LANGUAGE sql VOLATILE
    AS $$
    WITH target AS MATERIALIZED (
        SELECT j.*, q.key_retention_ms
          FROM faultline.jobs j
         CROSS JOIN LATERAL (
               SELECT s.key_retention_ms FROM faultline.queues s
                WHERE s.bucket = in_bucket AND s.name = j.queue LIMIT 1) AS q
         WHERE j.bucket = in_bucket AND j.id = ANY (ids) AND j.queue <> ''
         ORDER BY j.id
           FOR UPDATE OF j
    ), dead AS MATERIALIZED (
        SELECT * FROM target t WHERE t.state = 'dead' AND t.token < 9223372036854775807
    ), ended AS (
        DELETE FROM faultline.jobs j USING dead d WHERE j.bucket = in_bucket AND j.id = d.id
    ), booked AS (
        INSERT INTO faultline.ledger (
               bucket, job_id, token, attempt, outcome, state, requeues, queue, worker, error, /*carried*/,
               run_at, encoding, payload)
        SELECT in_bucket, d.id, d.token + 1, d.attempt, 'purged', 'cancelled', d.requeues, d.queue, who,
               d.last_error, /*carried d*/, d.run_at, 'json', 'null'::bytea
          FROM dead d
    ), keyed AS (
        INSERT INTO faultline.idempotency_keys AS old (bucket, queue, key, job_id, fingerprint, expires_at)
        SELECT in_bucket, k.queue, k.key, k.job_id, k.fingerprint,
               faultline.clock() + d.key_retention_ms * interval '1 millisecond'
          FROM dead d
         CROSS JOIN LATERAL (
               SELECT i.queue, i.key, i.job_id, i.fingerprint FROM faultline.idempotency_keys i
                WHERE i.bucket = in_bucket AND i.queue = d.queue AND i.key = d.idempotency_key
                  AND i.job_id = d.id
                LIMIT 1) AS k
         WHERE d.idempotency_key IS NOT NULL
        ON CONFLICT (bucket, queue, key) DO UPDATE SET expires_at = EXCLUDED.expires_at
         WHERE old.bucket = in_bucket
    ), tallied AS (
        INSERT INTO faultline.tallies (bucket, queue, dead, cancelled)
        SELECT in_bucket, d.queue, -count(*), count(*) FROM dead d GROUP BY d.queue
    )
    SELECT t.id, t.state = 'dead' AND t.token < 9223372036854775807,
           t.state = 'dead' AND t.token = 9223372036854775807
      FROM target t
    $$;

-- Takes back jobs that were added a second time: an enqueue that was sent again, because the answer to the
-- first was lost, after the job that the first one added had already ended. Such a job has never been claimed
-- and is in the ledger, which is true of no other. Runs with the owner's rights and deletes by that rule alone,
-- so that a producer may call it and still cannot delete a job.
CREATE FUNCTION faultline.drop_resubmitted(in_bucket smallint, ids uuid[]) RETURNS SETOF uuid
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$
    WITH dropped AS (
        DELETE FROM faultline.jobs j
         WHERE j.bucket = in_bucket AND j.id = ANY (ids) AND j.token = 0
           AND EXISTS (SELECT FROM faultline.ledger l WHERE l.bucket = in_bucket AND l.job_id = j.id OFFSET 0)
        RETURNING j.id, j.queue
    ), tallied AS (
        INSERT INTO faultline.tallies (bucket, queue, available)
        SELECT in_bucket, d.queue, -count(*) FROM dropped d GROUP BY d.queue
    )
    SELECT d.id FROM dropped d
    $$;

-- A job whole, wherever it is: for people with psql.
CREATE VIEW faultline.job AS
SELECT j.bucket, j.id, j.queue, j.kind, faultline.shown_state(j.state, j.run_at) AS state, j.priority, j.attempt,
       j.token, j.worker, j.run_at, j.created_at, j.claimed_at, j.lease_expires_at, NULL::timestamptz AS finished_at,
       j.last_error,
       CASE WHEN j.encoding = 'json' THEN convert_from(j.payload, 'UTF8')::json END AS payload, j.idempotency_key
  FROM faultline.jobs j
 WHERE j.queue <> ''
UNION ALL
SELECT l.bucket, l.job_id, l.queue, l.kind, l.state::text, l.priority, l.attempt, l.token, l.worker, l.run_at,
       l.created_at, l.started_at, NULL, l.ended_at, l.error,
       CASE WHEN l.encoding = 'json' THEN convert_from(l.payload, 'UTF8')::json END, l.idempotency_key
  FROM faultline.ledger l
 WHERE l.state IN ('succeeded', 'cancelled')
   AND NOT EXISTS (SELECT FROM faultline.ledger newer
                    WHERE newer.bucket = l.bucket AND newer.job_id = l.job_id AND newer.token > l.token);

-- The number of buckets is fixed here, by the migrator's setting.
INSERT INTO faultline.meta (bucket, buckets)
SELECT b, n.buckets
  FROM (SELECT coalesce(nullif(current_setting('faultline.buckets', true), ''), '1')::smallint AS buckets) AS n
 CROSS JOIN generate_series(0, n.buckets - 1) AS b;

INSERT INTO faultline.queues (bucket, name) SELECT m.bucket, 'default' FROM faultline.meta m;

-- Ballast: jobs of no queue, which nothing ever claims, lists or counts. A queue's table is empty most of the
-- time, and on a table that looks empty the planner finds it equally cheap to look a job up by its key or to
-- walk over all of them; the plan that it then keeps is ruinous when jobs come. With these rows the table
-- never looks empty, whenever it is analysed.
INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state, run_at)
SELECT m.bucket, encode('\x0000000000007000'::bytea || '\x8000'::bytea || int4send(i) || int2send(m.bucket), 'hex')::uuid,
       '', 'ballast', '', 'dead', 'infinity'
  FROM faultline.meta m CROSS JOIN generate_series(1, 100) AS i;
ANALYZE faultline.jobs;
