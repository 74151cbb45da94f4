#!/usr/bin/env node
// Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.
//
//   producer.js HOST:PORT QUEUE SECONDS NAME…

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { Client, status } = require('./faultline');

const again = [status.UNAVAILABLE, status.DEADLINE_EXCEEDED, status.RESOURCE_EXHAUSTED, status.UNKNOWN];

async function enqueue(address, jobs) {
  // With a key a job can be sent again when the answer is lost: it is added once.
  for (;;) {
    const client = new Client(address); // a new connection: a network can lose one without telling anybody
    try {
      return (await client.call('EnqueueBatch', { jobs })).submissions;
    } catch (error) {
      if (!again.includes(error.code)) throw error;
      process.stderr.write(`${error.details}; trying again\n`);
      await sleep(1000);
    } finally {
      client.close();
    }
  }
}

async function main([address, queue, seconds, ...names]) {
  if (names.length === 0) throw new Error('usage: producer.js HOST:PORT QUEUE SECONDS NAME…');
  const submissions = await enqueue(address, names.map((name) => ({
    queue, kind: 'greet', idempotency_key: `greet-${name}`,
    payload: Buffer.from(JSON.stringify({ name, seconds: Number(seconds) })),
  })));
  submissions.forEach(({ status: result, job_id }, i) => {
    if (result === 'CONFLICT') throw new Error(`${names[i]}: there is another job with this key, ${job_id}`);
    process.stdout.write(`${job_id}\n`);
  });
}

main(process.argv.slice(2)).catch((error) => {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
});
