// A worker for Faultline that speaks SQL and nothing else. `Worker` is all of it: take it along and change it.
//
// One job at a time: run several of these processes. Handlers share one thread with the heartbeats: one that computes for
// long without waiting loses its lease. All times are of this process's monotonic clock, in milliseconds.

'use strict';

const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const { Client, DatabaseError, Pool } = require('pg');

const now = () => performance.now();
const say = (text) => process.stderr.write(`${text}\n`);

// Whether asking again helps: the connection broke, or the server was busy, in recovery or told to end. What the database
// says about the call itself does not pass.
const is_passing = (error) => !(error instanceof DatabaseError) || /^(08|40|53|55|57)/.test(error.code);

// What was thrown, as text that PostgreSQL takes.
const described = (error) => String(error).replaceAll('\0', '\ufffd');

// A job in our hands, and whether to go on with it: a handler looks at `signal`, an AbortSignal.
class Attempt {
  #stop = new AbortController();

  constructor(job, asked_at) {
    this.lease = [job.id, job.token, job.lease_id]; // goes with every write, as it came
    this.token = job.token; // grows with every claim: hand it to stores that can refuse an older writer
    this.kind = job.kind;
    this.payload = job.payload_bytes ?? job.payload;
    this.ttl = Number(job.ttl_ms);
    // No lease is renewed past the job's maximum run time.
    this.end_at = job.run_max_ms === null ? Infinity : asked_at + Number(job.run_max_ms);
    this.stop_reason = null;
    this.over = new AbortController(); // the handler has ended
    this.renewed(asked_at);
  }

  // The lease began anew at some time after `asked_at`, so it is certainly good until the deadline.
  renewed(asked_at) {
    this.deadline = Math.min(asked_at + this.ttl, this.end_at);
    this.beat_at = asked_at + this.ttl / 3;
  }

  get signal() {
    return this.#stop.signal;
  }

  tell_to_stop(reason) {
    if (this.stop_reason !== 'lease_lost') this.stop_reason = reason; // which nothing outweighs
    this.#stop.abort();
  }
}

// Runs `handlers` (kind: async function of an Attempt) for the jobs of one queue. What a handler returns is the job's
// result; what it throws fails the attempt, unless it was told to stop.
class Worker {
  constructor(database, queue, handlers) {
    Object.assign(this, { database, queue, handlers });
    this.name = `node_pg-${os.hostname()}-${process.pid}`;
    // A network can lose a connection without telling anybody: nothing waits for ever.
    this.connecting = {
      connectionString: database, application_name: this.name, connectionTimeoutMillis: 5000, statement_timeout: 5000,
      query_timeout: 10_000, keepAlive: true, keepAliveInitialDelayMillis: 10_000,
    };
    // One connection for the work, one for heartbeats; the pool opens them anew after they broke.
    this.pool = new Pool({ ...this.connecting, max: 2 });
    this.pool.on('error', () => {}); // of a connection that was idle: the next one is new
    this.draining = new AbortController();
    this.sweep_at = this.tidy_at = 0;
  }

  // Works until SIGTERM or SIGINT. The handler that runs is told to stop; what it does not finish is given back.
  async run() {
    for (const name of ['SIGTERM', 'SIGINT']) process.on(name, () => this.drain());
    say(`${this.name} works on ${this.queue}`);
    while (!this.draining.signal.aborted) {
      try {
        await this.listen();
        await this.sweep();
        const job = await this.claim();
        if (job) await this.work(job);
        else await this.wait(1000);
      } catch (error) {
        if (!is_passing(error)) throw error;
        say(`the database is away: ${error.message}`);
        await this.wait(1000);
      }
    }
    // Whether the other end hears the farewell does not matter.
    await Promise.race([Promise.allSettled([this.listener?.end(), this.pool.end()]), sleep(1000)]);
    say(`${this.name} has ended`);
  }

  drain() {
    this.draining.abort();
    this.attempt?.tell_to_stop('draining');
    this.wake?.();
  }

  // Until there is news in a queue, we are told to end, or there was none for so long.
  wait(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.wake = () => (clearTimeout(timer), resolve());
      if (this.draining.signal.aborted) this.wake();
    });
  }

  async listen() {
    if (this.listener) return;
    const listener = this.listener = new Client(this.connecting);
    listener.on('notification', () => this.wake?.());
    listener.on('error', () => this.forget(listener));
    listener.on('end', () => this.forget(listener));
    try {
      await listener.connect();
    } catch (error) {
      this.forget(listener);
      throw error;
    }
    await this.on_listener('LISTEN faultline_jobs');
  }

  forget(listener) {
    if (this.listener === listener) this.listener = null;
  }

  // A connection that only listens would not notice that it is dead, so it does what is to be done now and then.
  async on_listener(sql) {
    const { listener } = this;
    if (!listener) return; // it has just broken, and the next round has a new one
    try {
      await listener.query(sql);
    } catch (error) {
      this.forget(listener);
      listener.end().catch(() => {});
      throw error;
    }
  }

  async row(sql, values = []) {
    return (await this.pool.query(sql, values)).rows[0];
  }

  // What a Faultline server does by itself: brings back the jobs of workers that vanished, and retires old ones.
  async sweep() {
    if (now() >= this.sweep_at) {
      this.sweep_at = now() + 1000;
      await this.on_listener('SELECT faultline.sweep()');
    }
    if (now() >= this.tidy_at) {
      this.tidy_at = now() + 60_000;
      await this.on_listener('SELECT faultline.tidy()');
    }
  }

  async claim() {
    const asked_at = now();
    const job = await this.row(
      `SELECT *, extract(epoch FROM lease_ttl) * 1000 AS ttl_ms, extract(epoch FROM run_max) * 1000 AS run_max_ms
         FROM faultline.claim($1, $2)`, [this.queue, this.name]);
    return job && new Attempt(job, asked_at);
  }

  async work(attempt) {
    this.attempt = attempt;
    if (this.draining.signal.aborted) attempt.tell_to_stop('draining'); // the signal came with the job
    const kept = this.keep_lease(attempt);
    const [verb, ...values] = await this.outcome_of(attempt).finally(() => attempt.over.abort());
    await kept; // a heartbeat that arrived after the outcome would look like that of a worker which lost its lease
    this.attempt = null;
    if (verb) await this.settle(attempt, verb, values);
  }

  // Runs the handler. No verb: there is nothing to report, because the job has gone on without us.
  async outcome_of(attempt) {
    let outcome;
    try {
      attempt.signal.throwIfAborted();
      const handler = this.handlers[attempt.kind];
      if (!handler) throw new Error(`this worker has no handler for the kind ${attempt.kind}`);
      outcome = ['complete', JSON.stringify((await handler(attempt)) ?? null)];
    } catch (error) {
      if (!attempt.signal.aborted) outcome = ['fail', described(error)];
      else outcome = attempt.stop_reason === 'draining' ? ['release'] : [null];
    }
    return attempt.stop_reason === 'cancelled' ? ['acknowledge_cancel', 'stopped as asked'] : outcome;
  }

  // Sends the outcome until it is answered, or until the lease may be over. Sent twice it counts once: `repeated` says that
  // the first one was committed, and only its answer was lost.
  async settle(attempt, verb, values) {
    const about = `job ${attempt.lease[0]}, token ${attempt.token}`;
    const all = [...attempt.lease, ...values];
    for (;;) {
      try {
        const answer = await this.row(`SELECT * FROM faultline.${verb}(${all.map((_, i) => `$${i + 1}`)})`, all);
        if (answer.status !== 'stale') return;
        return say(`${about}: refused: ${answer.reason}, the current token is ${answer.current_token}`);
      } catch (error) {
        // A result that jsonb cannot hold.
        if (verb === 'complete' && /^22/.test(error.code)) return this.settle(attempt, 'fail', [described(error)]);
        if (!is_passing(error)) throw error;
        if (now() > attempt.deadline) return say(`${about}: no answer; the job's history has it: ${error.message}`);
        await sleep(attempt.ttl / 10);
      }
    }
  }

  // Renews the lease after a third of its TTL, and tells the handler to stop when it is not certainly good.
  async keep_lease(attempt) {
    const late = setInterval(() => now() >= attempt.deadline && attempt.tell_to_stop('lease_lost'), attempt.ttl / 10);
    while (!['lease_lost', 'cancelled'].includes(attempt.stop_reason)) {
      await sleep(Math.max(attempt.beat_at - now(), 0), null, { signal: attempt.over.signal }).catch(() => {});
      if (attempt.over.signal.aborted) break;
      const asked_at = now();
      try {
        const beat = await this.row('SELECT * FROM faultline.heartbeat($1, $2, $3)', attempt.lease);
        if (beat.status === 'stale') attempt.tell_to_stop('lease_lost');
        else if (beat.cancel_requested) attempt.tell_to_stop('cancelled');
        else attempt.renewed(asked_at);
      } catch (error) {
        say(`a heartbeat failed: ${error.message}`);
        attempt.beat_at = asked_at + attempt.ttl / 10;
      }
    }
    clearInterval(late);
  }
}

module.exports = { Worker, is_passing };
