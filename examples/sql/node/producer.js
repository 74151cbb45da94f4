#!/usr/bin/env node
// Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.
//
//   producer.js DATABASE QUEUE SECONDS NAME…

'use strict';

const { Client } = require('pg');

async function main([database, queue, seconds, ...names]) {
  if (names.length === 0) throw new Error('usage: producer.js DATABASE QUEUE SECONDS NAME…');
  const client = new Client({ connectionString: database, connectionTimeoutMillis: 5000, query_timeout: 10_000 });
  await client.connect();
  // All or none of them. With a key each can be sent again when the answer is lost: it is added once.
  const jobs = names.map((name) => ({
    queue, kind: 'greet', idempotency_key: `greet-${name}`, payload: { name, seconds: Number(seconds) },
  }));
  const { rows } = await client.query('SELECT faultline.enqueue_many($1) AS id', [JSON.stringify(jobs)]);
  for (const { id } of rows) process.stdout.write(`${id}\n`);
  await client.end();
}

main(process.argv.slice(2)).catch((error) => {
  process.stderr.write(`${error.message}\n`);
  process.exit(1); // whatever the connection still waits for
});
