// The gRPC client of a Faultline server, made from the published proto.

'use strict';

const os = require('node:os');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const proto = process.env.FAULTLINE_PROTO ?? path.join(__dirname, '../../proto');
// Numbers of 64 bits come as text: a token is handed back as it came.
const definition = protoLoader.loadSync('faultline/v1/faultline.proto', {
  includeDirs: [proto], keepCase: true, longs: String, enums: String, defaults: true, oneofs: true,
});
const { Faultline } = grpc.loadPackageDefinition(definition).faultline.v1;

class Client {
  constructor(address) {
    // A network can lose a connection without telling anybody, and a stream that waits for jobs would wait for ever. So the
    // channel asks every now and then whether the other end is still there. A server allows that every 5 s.
    this.client = new Faultline(address, grpc.credentials.createInsecure(), {
      'grpc.keepalive_time_ms': 10_000, 'grpc.keepalive_timeout_ms': 5000, 'grpc.max_reconnect_backoff_ms': 5000,
    });
    this.metadata = new grpc.Metadata();
    const key = process.env.FAULTLINE_API_KEY;
    if (key) this.metadata.set('authorization', `Bearer ${key}`);
  }

  // One call and its answer.
  call(method, request, timeout = 10_000) {
    return new Promise((resolve, reject) => {
      this.client[method](request, this.metadata, { deadline: Date.now() + timeout },
        (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  }

  stream() {
    return this.client.StreamJobs(this.metadata);
  }

  close() {
    this.client.close();
  }
}

// Asking again does not help: somebody has to change something.
const hopeless = (error) => [grpc.status.UNAUTHENTICATED, grpc.status.PERMISSION_DENIED, grpc.status.INVALID_ARGUMENT,
  grpc.status.UNIMPLEMENTED].includes(error.code);

const worker_name = () => `node-${os.hostname()}-${process.pid}`;

module.exports = { Client, hopeless, status: grpc.status, worker_name };
