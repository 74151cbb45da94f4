// One process that drains another queue: `node drain.js fill|work PEER DATABASE JOBS`. The settings are those that the
// peer's own documentation gives for throughput. Handlers do nothing.
"use strict";

const { Pool } = require("pg");

const payload = { customer: 4711, note: "the same for every benchmark" };

function pooled(database) {
  const pool = new Pool({ connectionString: database, max: 10 });
  const fail = (error) => { throw error; };
  pool.on("error", fail);
  pool.on("connect", (client) => client.on("error", fail));
  return pool;
}

async function inserted(pool, sql, jobs) {
  const batch = 10_000;
  for (let done = 0; done < jobs; done += batch) await pool.query(sql, [Math.min(batch, jobs - done), JSON.stringify(payload)]);
}

const graphileWorker = {
  async fill(database, jobs) {
    const { runMigrations } = require("graphile-worker");
    const pool = pooled(database);
    await runMigrations({ pgPool: pool });
    await inserted(pool, "SELECT count(graphile_worker.add_job('noop', $2::json)) FROM generate_series(1, $1::int)", jobs);
    await pool.query("VACUUM ANALYZE");
    await pool.end();
  },
  // A local queue and completions in batches.
  async work(database) {
    const { run, Logger } = require("graphile-worker");
    const pool = pooled(database);
    const runner = await run({
      pgPool: pool,
      taskList: { noop: () => {} },
      logger: new Logger(() => () => {}),
      noHandleSignals: true,
      preset: {
        worker: { concurrentJobs: 24, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
      },
    });
    const left = async () => (await pool.query("SELECT FROM graphile_worker._private_jobs LIMIT 1")).rowCount;
    while (await left()) await new Promise((resolve) => setTimeout(resolve, 20));
    const ended = Date.now();
    await runner.stop();
    return ended;
  },
};

const pgBoss = {
  async boss(database) {
    const PgBoss = require("pg-boss");
    const boss = new PgBoss({ connectionString: database, supervise: false, schedule: false, max: 4 });
    boss.on("error", (error) => { throw error; });
    await boss.start();
    return boss;
  },
  async fill(database, jobs) {
    const boss = await this.boss(database);
    await boss.createQueue("noop");
    const batch = 5_000;
    for (let done = 0; done < jobs; done += batch)
      await boss.insert(Array.from({ length: Math.min(batch, jobs - done) }, () => ({ name: "noop", data: payload })));
    await boss.stop({ graceful: false });
    const pool = pooled(database);
    await pool.query("VACUUM ANALYZE");
    await pool.end();
  },
  // By fetch and complete: work() waits for its polling interval between batches.
  async work(database) {
    const boss = await this.boss(database);
    const loop = async () => {
      for (;;) {
        const jobs = await boss.fetch("noop", { batchSize: 500 });
        if (jobs.length === 0) return;
        await boss.complete("noop", jobs.map((job) => job.id));
      }
    };
    await Promise.all([loop(), loop()]);
    const ended = Date.now();
    await boss.stop({ graceful: false });
    return ended;
  },
};

const peers = { "graphile-worker": graphileWorker, "pg-boss": pgBoss };

async function main([verb, name, database, jobs]) {
  const peer = peers[name];
  if (verb === "fill") await peer.fill(database, Number(jobs));
  else process.stdout.write(`${await peer.work(database)}\n`);
  process.exit(0);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
