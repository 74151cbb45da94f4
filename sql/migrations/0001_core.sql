-- The core: queues, jobs with their leases, the ledger of ended attempts, effects, idempotency keys
-- and the evidence of stale writes.
--
-- How it works, in seven points:
--   1. `jobs` holds live jobs only. A job that finishes leaves it and becomes a ledger row, so the hot
--      table and its indexes stay as small as the backlog.
--   2. The lease lives on the job row. A running row without a lease cannot exist: a CHECK says so.
--      A claim is one update of that row, and writes to no index.
--   3. Every claim raises `token`. So does every act of an operator on a job (cancel, requeue), so
--      that each ledger row has a token of its own.
--   4. The fence is the pair (token, lease_id). Every write of a worker carries it. The lease id is the worker's
--      secret: whoever knows it can write in its name, so nothing that is shown to anybody else has it.
--   5. All time comes from faultline.clock() and clock_now(). Nothing else in this schema reads a clock.
--   6. `bucket` leads every key and stands on every table reference, so that the same functions run
--      on an engine that shards by it. A single server has one bucket, 0.
--   7. Each verb is one function of sql/functions/, and these are the only way to change a job: roles have
--      the right to call them, and none to write to a table.

CREATE SCHEMA IF NOT EXISTS faultline;

-- The clock of all that only reads: the time of the statement. STABLE and a single expression, so the
-- planner inlines it and it costs nothing. Drills replace it, and clock_now(), by one they can move.
CREATE FUNCTION faultline.clock() RETURNS timestamptz
    LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT statement_timestamp()';

-- This very moment. A verb asks for it after it holds its row locks: a lease may have run out while it waited.
CREATE FUNCTION faultline.clock_now() RETURNS timestamptz
    LANGUAGE sql VOLATILE
    AS 'SELECT clock_timestamp()';

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
    -- How long dead jobs wait for somebody; what nobody asked for is never thrown away: a hundred years is for ever.
    dead_retention_ms bigint     NOT NULL DEFAULT 3153600000000 CHECK (dead_retention_ms >= 0),
    created_at       timestamptz NOT NULL DEFAULT faultline.clock(),
    updated_at       timestamptz NOT NULL DEFAULT faultline.clock(),
    -- Since when nothing is added to it, and nobody sees it while it is empty. The row stays, for its finished jobs and for
    -- what a producer's transaction that was open at that moment adds after all: no job is ever without a queue.
    deleted_at       timestamptz,
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
    -- Its time had not come when run_at was written. The watchdog takes the mark away once it has: so few marked jobs are
    -- due, and counting those is cheap.
    delayed          boolean     NOT NULL DEFAULT false,
    -- Its last attempt ended with its worker. Whether the job took the worker along or the other way round shows when
    -- it is tried with nothing beside it.
    suspect          boolean     NOT NULL DEFAULT false,
    -- Of the current lease: the handler has begun, for all that is known, and with nothing beside it in its worker.
    begun            boolean     NOT NULL DEFAULT true,
    alone            boolean     NOT NULL DEFAULT false,
    -- How often the job was requeued: it may finish once per requeue, and no more.
    requeues         integer     NOT NULL DEFAULT 0,
    -- Options of the job; NULL: as the queue says.
    attempts_max     integer,
    lease_ttl_ms     integer,
    run_max_ms       bigint,
    backoff_base_ms  integer,
    backoff_max_ms   integer,
    -- The TTL that the current lease was granted with: a renewal goes by it, whatever the queue says by now.
    granted_ttl_ms   integer,
    -- Since when the job is dead.
    died_at          timestamptz,
    cancel_requested_at timestamptz,
    -- The call that asked for the cancellation, so that the same call sent again is answered the same.
    cancel_call_id   uuid,
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
    -- The functions check ranges. This is the protocol itself: a job has a lease while it runs and at no other time. The audit
    -- looks at more than that; here it is one short expression, because every statement that writes to jobs reads it anew,
    -- and one of four lines took a third of the time that it takes to add a job.
    CONSTRAINT running_has_a_lease_and_nothing_else_has CHECK (
        num_nonnulls(lease_id, lease_expires_at, worker, claimed_at) = CASE state WHEN 'running' THEN 4 ELSE 0 END)
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
--
-- No two entries of it are equal, so looking for such when a page is full is work for nothing.
CREATE INDEX jobs_due ON faultline.jobs (bucket, queue, priority, run_at, id) WITH (deduplicate_items = off)
    WHERE priority >= 0;

-- Which jobs were told to wait, by the time that they wait for. Only those are in it, so what is submitted to run at once
-- costs nothing here.
CREATE INDEX jobs_delayed ON faultline.jobs (bucket, run_at, id) WHERE delayed;

-- Jobs that wait for a person (held, dead), of all queues and of one, for those who list them. A claim and a heartbeat never
-- change run_at, so these cost them nothing; ballast is none of anybody's business.
CREATE INDEX jobs_parked ON faultline.jobs (bucket, id) WHERE run_at = 'infinity' AND queue <> '';
CREATE INDEX jobs_parked_of_queue ON faultline.jobs (bucket, queue, id) WHERE run_at = 'infinity' AND queue <> '';

-- Which dead jobs of a queue are the next to be purged.
CREATE INDEX jobs_dead_retention ON faultline.jobs (bucket, queue, died_at) WHERE died_at IS NOT NULL AND queue <> '';

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
    -- When the lease would have run out, or did.
    lease_expires_at timestamptz,
    ended_at         timestamptz NOT NULL DEFAULT faultline.clock(),
    -- Where the job went with this row. A finished job is here and not in `jobs`.
    state            faultline.job_state NOT NULL,
    requeues         integer     NOT NULL,
    queue            text        COLLATE "C" NOT NULL,
    -- The worker that held the lease, or who acted.
    worker           text        COLLATE "C",
    -- Of an attempt that was ended through a server: the API key that did it, by name and id. A worker says itself what it
    -- is called; its key was checked.
    written_by       text        COLLATE "C",
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
    -- The operator's call that did this, or that asked for the cancellation: the same call sent again finds it. An
    -- attempt's end needs none, its lease id says whose it is.
    call_id          uuid,
    -- A second line of defence after the functions' guard: one ledger row per token of a job …
    PRIMARY KEY (bucket, job_id, token)
)
WITH (autovacuum_vacuum_insert_scale_factor = 0.05);

-- … and one end per job and requeue. The queue of a job never changes, so having it here costs no
-- uniqueness, and the same index lists a queue's finished jobs in the order of their ids.
CREATE UNIQUE INDEX ledger_finished ON faultline.ledger (bucket, queue, job_id, requeues)
    WHERE state IN ('succeeded', 'cancelled');

-- How far prune_jobs has come in its round through the finished jobs: one row per bucket, which no other verb writes. An index
-- by the time of their end would cost every settlement an entry per job.
CREATE TABLE faultline.retention (
    bucket smallint PRIMARY KEY,
    queue  text     COLLATE "C" NOT NULL DEFAULT '',
    job_id uuid     NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000'
);

CREATE TABLE faultline.effects (
    bucket      smallint    NOT NULL,
    job_id      uuid        NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    -- The fence under which the effect began, and was recorded.
    token       bigint      NOT NULL,
    lease_id    uuid        NOT NULL,
    worker      text        COLLATE "C" NOT NULL,
    -- The call that announced it: the same call sent again did announce it, any other did not.
    call_id     uuid,
    started_at  timestamptz NOT NULL DEFAULT faultline.clock(),
    -- NULL: it began and nobody knows how it ended.
    recorded_at timestamptz,
    -- It certainly did not happen. The row stays, so that its announcement is not taken for news if it is delivered
    -- a second time.
    forgotten_at timestamptz,
    result      bytea,
    PRIMARY KEY (bucket, job_id, key),
    CHECK (octet_length(key) BETWEEN 1 AND 256)
);

-- What people found out about effects that were begun and never recorded: one row per announcement, append-only.
CREATE TABLE faultline.effect_decisions (
    bucket      smallint    NOT NULL,
    job_id      uuid        NOT NULL,
    key         text        COLLATE "C" NOT NULL,
    -- Under which the effect had begun.
    token       bigint      NOT NULL,
    happened    boolean     NOT NULL,
    decided_at  timestamptz NOT NULL DEFAULT faultline.clock(),
    decided_by  text        COLLATE "C" NOT NULL,
    -- How that is known.
    reason      text        NOT NULL,
    PRIMARY KEY (bucket, job_id, key, token)
);

CREATE TABLE faultline.idempotency_keys (
    bucket       smallint    NOT NULL,
    queue        text        COLLATE "C" NOT NULL,
    key          text        COLLATE "C" NOT NULL,
    job_id       uuid        NOT NULL,
    -- SHA-256 over kind, encoding and payload: what must be the same under the same key.
    fingerprint  bytea       NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT faultline.clock(),
    -- NULL while the job is on record: then the key is good while the job lives and for the queue's key_retention
    -- after its end, which submissions look up. So no worker ever writes here, and none waits for a producer. Set
    -- when the job is retired before its key.
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
    -- … and what was true of the job when it came.
    current_token    bigint,
    current_worker   text     COLLATE "C",
    current_state    faultline.job_state,
    -- When the late writer's own lease ran out, or would have.
    lease_expired_at timestamptz,
    PRIMARY KEY (bucket, job_id, id)
);
-- Every row is in it. As with jobs_due, the predicate keeps statements that look for a job's rows from walking it while the
-- table looks empty.
CREATE INDEX stale_writes_by_time ON faultline.stale_writes (bucket, at) WHERE at > '-infinity';

-- Which are the next to be retired.
CREATE INDEX stale_writes_retention ON faultline.stale_writes (bucket, queue, at) WHERE queue <> '';

-- How many jobs are where, as differences: every verb that moves jobs adds a row in its own
-- transaction, readers add them up, the watchdog folds them together. Counts are exact, cost no scan
-- of jobs, and no two transactions ever wait for one another over them.
CREATE TABLE faultline.tallies (
    bucket    smallint NOT NULL,
    queue     text     COLLATE "C" NOT NULL,
    id        bigint   NOT NULL GENERATED ALWAYS AS IDENTITY,
    -- Due and scheduled: which of the two a job is changes with the clock.
    available bigint   NOT NULL DEFAULT 0,
    -- Of the available ones those that are marked as delayed. Less those of them whose time has come meanwhile, which
    -- are few and have an index, it is the number of scheduled jobs.
    delayed   bigint   NOT NULL DEFAULT 0,
    -- Of the delayed ones those that wait for another attempt: they have one behind them.
    retrying  bigint   NOT NULL DEFAULT 0,
    running   bigint   NOT NULL DEFAULT 0,
    held      bigint   NOT NULL DEFAULT 0,
    dead      bigint   NOT NULL DEFAULT 0,
    succeeded bigint   NOT NULL DEFAULT 0,
    cancelled bigint   NOT NULL DEFAULT 0,
    -- No number of jobs: how many attempts have failed, or were lost with their worker, since the queue was made.
    failures  bigint   NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, queue, id)
)
WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- What became of one write: what a verb answers for each write that it did not carry out.
CREATE TYPE faultline.verdict AS (
    id               uuid,
    token            bigint,
    lease_id         uuid,
    status           text,  -- stale, repeated, good
    reason           faultline.stale_reason,
    verb             text,
    worker           text,
    queue            text,
    current_token    bigint,
    current_worker   text,
    current_state    faultline.job_state,
    lease_expires_at timestamptz
);

-- What people call a job that is available: scheduled until its time has come.
CREATE FUNCTION faultline.shown_state(state faultline.job_state, run_at timestamptz)
    RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
    AS $$SELECT CASE WHEN state = 'available' AND run_at > faultline.clock() THEN 'scheduled' ELSE state::text END$$;

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
INSERT INTO faultline.retention (bucket) SELECT m.bucket FROM faultline.meta m;

-- Ballast: jobs of no queue, which nothing ever claims, lists or counts. A queue's table is empty most of the
-- time, and on a table that looks empty the planner finds it equally cheap to look a job up by its key or to
-- walk over all of them; the plan that it then keeps is ruinous when jobs come. With these rows the table
-- never looks empty, whenever it is analysed.
INSERT INTO faultline.jobs (bucket, id, queue, kind, payload, state, run_at)
SELECT m.bucket, encode('\x0000000000007000'::bytea || '\x8000'::bytea || int4send(i) || int2send(m.bucket), 'hex')::uuid,
       '', 'ballast', '', 'dead', 'infinity'
  FROM faultline.meta m CROSS JOIN generate_series(1, 100) AS i;
ANALYZE faultline.jobs;
