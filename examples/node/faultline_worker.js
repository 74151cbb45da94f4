// A worker for Faultline over gRPC. `Worker` is all of it: take it along and change it.
//
// Handlers share one thread with the heartbeats: one that computes for long without waiting loses its lease. All times
// are of this process's monotonic clock, in milliseconds.

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { Client, hopeless, status, worker_name } = require('./faultline');

const now = () => performance.now();
const say = (text) => process.stderr.write(`${text}\n`);

// A job in our hands, and whether to go on with it: a handler looks at `signal`, an AbortSignal.
class Attempt {
  #stop = new AbortController();

  constructor(job, asked_at) {
    this.job = job;
    this.payload = job.encoding === 'ENCODING_JSON' ? JSON.parse(job.payload.toString() || 'null') : job.payload;
    this.token = job.lease.token; // grows with every claim: hand it to stores that can refuse an older writer
    this.ttl = Number(job.lease_ttl_ms);
    // No lease is renewed past the job's maximum run time.
    this.end_at = job._run_max_ms ? asked_at + Number(job.run_max_ms) : Infinity;
    this.state = 'arriving'; // running, reporting
    this.beating = null; // the heartbeat that is on its way
    this.stop_reason = null;
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
  constructor(address, queue, handlers, { slots = 4, drain_max = 30_000 } = {}) {
    Object.assign(this, { queue, handlers, slots, drain_max });
    this.client = new Client(address);
    this.name = worker_name();
    this.running = new Set(); // attempts
    this.draining = new AbortController();
    this.failure = null;
  }

  // Works until SIGTERM or SIGINT, then lets go of its jobs in an orderly way.
  async run() {
    for (const name of ['SIGTERM', 'SIGINT']) process.on(name, () => this.drain());
    say(`${this.name} works on ${this.queue}`);
    await this.keep_stream();
    await this.finish();
    if (this.failure) throw this.failure;
  }

  // The stream: jobs come as far as we grant credit.

  async keep_stream() {
    for (let delay = 100; !this.draining.signal.aborted;) {
      const error = await this.read_stream();
      if (error) say(`the stream broke: ${error.message}`);
      if (error && hopeless(error)) {
        this.failure = error;
        this.drain();
      }
      delay = this.received ? 100 : Math.min(delay * 2, 5000);
      await sleep(delay * (0.5 + Math.random() / 2), null, { signal: this.draining.signal }).catch(() => {});
    }
  }

  // Reads one stream to its end; gives the error if there was one.
  read_stream() {
    this.sequence = this.received = 0;
    this.asked_at = new Map(); // when a message was sent, by its sequence
    const stream = this.stream = this.client.stream();
    this.grant();
    return new Promise((resolve) => {
      stream.on('data', (response) => {
        this.begin(response);
        if (!response.going_away) return;
        resolve(null); // this server stops: on to the next one
        stream.cancel();
      });
      stream.on('error', (error) => resolve(error));
      stream.on('end', () => resolve(null));
    });
  }

  // Grants a job for each free slot. Credit counts from the beginning of the stream.
  grant() {
    if (!this.stream.writable) return;
    this.sequence += 1;
    this.asked_at.set(this.sequence, now());
    this.stream.write({
      queue: this.queue, worker: this.name, sequence: this.sequence,
      credit: this.received + this.slots - this.running.size,
    });
  }

  begin({ jobs, sequence }) {
    // These leases began after the server had read that message, so after we sent it.
    const asked_at = this.asked_at.get(Number(sequence));
    for (const sent of this.asked_at.keys()) if (sent < Number(sequence)) this.asked_at.delete(sent);
    const attempts = jobs.map((job) => new Attempt(job, asked_at));
    this.received += attempts.length;
    for (const attempt of attempts) {
      this.running.add(attempt);
      this.work(attempt);
    }
  }

  // One job.

  async work(attempt) {
    try {
      // It came on a grant that had been waiting: make sure of the lease before anything is done.
      if (attempt.beat_at <= now()) await this.beat([attempt]);
      attempt.state = 'running';
      this.keep_leases();
      const outcome = await this.outcome_of(attempt);
      if (outcome) await this.report(attempt, outcome);
    } catch (error) { // the lease runs out, and the job comes again
      say(`job ${attempt.job.lease.job_id}, token ${attempt.token}: not reported: ${error?.message}`);
    } finally { // whatever happened, the slot is free
      this.running.delete(attempt);
      this.grant();
    }
  }

  // Runs the handler. Null: there is nothing to report, because the job has gone on without us.
  async outcome_of(attempt) {
    if (this.draining.signal.aborted) attempt.tell_to_stop('draining');
    let outcome;
    try {
      attempt.signal.throwIfAborted();
      const handler = this.handlers[attempt.job.kind];
      if (!handler) throw new Error(`this worker has no handler for the kind ${attempt.job.kind}`);
      const result = await handler(attempt);
      outcome = { kind: 'SUCCEEDED', result: Buffer.from(JSON.stringify(result ?? null)) };
    } catch (error) {
      if (!attempt.signal.aborted) outcome = { kind: 'FAILED', error: String(error) };
      else outcome = attempt.stop_reason === 'draining' ? { kind: 'RELEASED' } : null;
    }
    return attempt.stop_reason === 'cancelled' ? { kind: 'CANCELLED', error: 'stopped as asked' } : outcome;
  }

  // Sends the outcome until it is answered, or until the lease may be over.
  async report(attempt, outcome) {
    attempt.state = 'reporting'; // no more heartbeats
    // One that arrived after the outcome would look like that of a worker which lost its lease.
    await attempt.beating;
    const about = `job ${attempt.job.lease.job_id}, token ${attempt.token}`;
    const results = [{ lease: attempt.job.lease, outcome }];
    for (;;) { // again: it may have been committed, and only the answer is missing
      try {
        const { verdicts } = await this.client.call('ReportResult', { results });
        if (verdicts[0].status === 'COMMITTED') return;
      } catch (error) {
        if (error.code === status.FAILED_PRECONDITION || hopeless(error)) return say(`${about}: refused: ${error.details}`);
      }
      if (now() > attempt.deadline) return say(`${about}: no answer; the job's history has it`);
      await sleep(attempt.ttl / 10);
    }
  }

  // Leases: renewed after a third of their TTL. A handler whose lease is not certainly good any more is told to stop.

  keep_leases() {
    clearTimeout(this.timer);
    const kept = [...this.running].filter(({ state, stop_reason }) => state === 'running' && stop_reason !== 'lease_lost');
    if (kept.length === 0) return;
    for (const attempt of kept) if (now() >= attempt.deadline) attempt.tell_to_stop('lease_lost');
    this.beat(kept.filter(({ beat_at, deadline, beating }) => !beating && beat_at <= now() && now() < deadline));
    const next_at = Math.min(...kept.map(({ beat_at, deadline }) => Math.min(beat_at, deadline)));
    this.timer = setTimeout(() => this.keep_leases(), Math.max(next_at - now(), 10));
  }

  // Renews these leases. Each attempt has the promise of it until it is answered.
  beat(attempts) {
    if (attempts.length === 0) return null;
    const beating = this.ask_for_beats(attempts).finally(() => attempts.forEach((attempt) => { attempt.beating = null; }));
    for (const attempt of attempts) attempt.beating = beating;
    return beating;
  }

  async ask_for_beats(attempts) {
    const asked_at = now();
    for (const attempt of attempts) attempt.beat_at = asked_at + attempt.ttl / 10; // unless there is an answer
    try {
      const leases = attempts.map(({ job }) => job.lease);
      const { beats } = await this.client.call('Heartbeat', { leases }, Math.min(10_000, ...attempts.map(({ ttl }) => ttl / 3)));
      attempts.forEach((attempt, i) => {
        if (beats[i].status === 'RENEWED') return attempt.renewed(asked_at);
        attempt.beat_at = Infinity;
        return attempt.tell_to_stop(beats[i].status === 'LOST' ? 'lease_lost' : 'cancelled');
      });
    } catch (error) {
      say(`a heartbeat failed: ${error.message}`);
    }
  }

  // The end.

  drain() {
    if (this.draining.signal.aborted) return;
    this.draining.abort();
    this.end_at = now() + this.drain_max;
    this.stream.end(); // the server ends the stream; what it has sent until then is released
    setTimeout(() => this.stream.cancel(), this.drain_max).unref();
    for (const attempt of this.running) attempt.tell_to_stop('draining');
  }

  async finish() {
    while (this.running.size > 0 && now() < this.end_at) await sleep(50);
    for (const attempt of this.running) { // handlers that did not look; the process ends under them
      const may_run_again = attempt.job.delivery === 'DELIVERY_AT_LEAST_ONCE';
      if (may_run_again && attempt.state === 'running') await this.report(attempt, { kind: 'RELEASED' });
    }
    this.client.close();
    clearTimeout(this.timer);
    say(`${this.name} has ended`);
  }
}

module.exports = { Worker };
