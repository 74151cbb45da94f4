// `node run.js FAULTLINE_DEV [--jobs N] [--rounds R] [--json]`: every queue empties N waiting no-op jobs, in turns, on one
// durable PostgreSQL, with two processes (Faultline: two workers). The clock runs from before the processes start until
// the last completion is committed, as in `faultline-dev bench drain`.
"use strict";

const { execFileSync, spawn } = require("node:child_process");
const { chmodSync, mkdtempSync, rmSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");
const { parseArgs } = require("node:util");
const { Client } = require("pg");

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    jobs: { type: "string", default: "30000" },
    rounds: { type: "string", default: "1" },
    json: { type: "boolean", default: false },
  },
});
const [faultline] = positionals;
const jobs = Number(options.jobs);
const rounds = Number(options.rounds);
if (!faultline || !(jobs > 0) || !(rounds > 0)) {
  console.error("usage: node run.js PATH_OF_FAULTLINE_DEV [--jobs N] [--rounds R] [--json]");
  process.exit(2);
}
const version = (name) => require(`${name}/package.json`).version;
const drain = path.join(__dirname, "drain.js");

// A worker process says when it found everything done; the slowest counts.
function worker(peer, database) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [drain, "work", peer, database], { stdio: ["ignore", "pipe", "inherit"] });
    let out = "";
    child.stdout.on("data", (data) => (out += data));
    child.on("close", (code) => (code === 0 ? resolve(Number(out)) : reject(new Error(`${peer} ended with ${code}`))));
  });
}

async function peerRate(peer, admin, url) {
  const name = `peer_${peer.replace("-", "_")}`;
  await admin.query(`DROP DATABASE IF EXISTS ${name}`);
  await admin.query(`CREATE DATABASE ${name}`);
  const database = url(name);
  execFileSync(process.execPath, [drain, "fill", peer, database, String(jobs)], { stdio: ["ignore", "ignore", "inherit"] });
  await admin.query("CHECKPOINT");
  const began = Date.now();
  const ended = Math.max(...(await Promise.all([worker(peer, database), worker(peer, database)])));
  await admin.query(`DROP DATABASE ${name}`);
  return jobs / ((ended - began) / 1000);
}

function faultlineRate(database) {
  const answer = execFileSync(faultline, ["bench", "drain", "--json", "--database", database, "--workers", "2", "--jobs",
    String(jobs), "--rounds", "1"], { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
  return JSON.parse(answer).jobs_per_s;
}

const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];

async function main() {
  const directory = mkdtempSync(path.join(tmpdir(), "faultline-peers-"));
  chmodSync(directory, 0o711); // the server may be another user
  const pg = (verb) => execFileSync(faultline, ["pg", verb, "--data-dir", path.join(directory, "pg"), "--json"], { encoding: "utf8" });
  // However it ends, also by a signal.
  process.on("exit", () => {
    pg("stop");
    rmSync(directory, { recursive: true, force: true });
  });
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
  const { url: base } = JSON.parse(pg("start"));
  const url = (name) => {
    const changed = new URL(base.replace(/^postgresql:\/\/([^/]*@)?\//, "postgresql://$1localhost/"));
    changed.pathname = `/${name}`;
    return changed.toString();
  };
  const admin = new Client({ connectionString: base });
  await admin.connect();
  const rates = { faultline: [], [`graphile-worker ${version("graphile-worker")}`]: [], [`pg-boss ${version("pg-boss")}`]: [] };
  for (let round = 0; round < rounds; round += 1) {
    for (const name of Object.keys(rates)) {
      const peer = name.split(" ")[0];
      rates[name].push(peer === "faultline" ? faultlineRate(base) : await peerRate(peer, admin, url));
    }
  }
  await admin.end();
  const ours = median(rates.faultline);
  const report = Object.entries(rates).map(([name, list]) => ({ queue: name, jobs_per_s: Math.round(median(list)), faultline_is_faster_by: ours / median(list) }));
  if (options.json) console.log(JSON.stringify({ jobs, rounds, queues: report }));
  else for (const row of report) console.log(`${row.queue.padEnd(24)} ${String(row.jobs_per_s).padStart(8)} jobs/s   ${row.faultline_is_faster_by.toFixed(1)}x`);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
