#!/usr/bin/env node
// Greets people until SIGTERM.
//
//   worker.js DATABASE QUEUE

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('./faultline_sql');

async function greet({ payload, signal }) {
  // Work that takes its time, and looks whether to go on: between its steps, or while it waits.
  await sleep((payload.seconds ?? 0) * 1000, null, { signal });
  return `hello, ${payload.name}, from node_pg`;
}

const [database, queue] = process.argv.slice(2);
if (!queue) {
  process.stderr.write('usage: worker.js DATABASE QUEUE\n');
  process.exit(2);
}
new Worker(database, queue, { greet }).run().then(() => process.exit(0), (error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1);
});
