// A worker whose handler does not look whether to stop, and ends only when a file is there. FILE.begun says that it runs.
//
//   stubborn_sql_worker.js DATABASE QUEUE FILE

'use strict';

const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('../../examples/sql/node/faultline_sql');

const [database, queue, file] = process.argv.slice(2);

async function greet() {
  fs.writeFileSync(`${file}.begun`, '');
  while (!fs.existsSync(file)) await sleep(20);
  return 'late';
}

new Worker(database, queue, { greet }).run();
