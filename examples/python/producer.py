#!/usr/bin/env python3
"""Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.

producer.py HOST:PORT QUEUE SECONDS NAME…
"""

import json
import os
import sys
import time

import grpc
from faultline.v1 import faultline_pb2 as pb
from faultline.v1 import faultline_pb2_grpc as pb_grpc

if len(sys.argv) < 5:
    sys.exit(__doc__)
address, queue_name, seconds, *names = sys.argv[1:]
key = os.environ.get("FAULTLINE_API_KEY")

AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED,
         grpc.StatusCode.UNKNOWN)
# With a key a job can be sent again when the answer is lost: it is added once.
request = pb.EnqueueBatchRequest(jobs=[
    pb.NewJob(queue=queue_name, kind="greet", idempotency_key=f"greet-{name}",
              payload=json.dumps({"name": name, "seconds": float(seconds)}).encode())
    for name in names])
while True:
    try:
        # On a connection of its own: a network can lose one without telling anybody.
        with grpc.insecure_channel(address) as channel:
            answer = pb_grpc.FaultlineStub(channel).EnqueueBatch(
                request, timeout=10, metadata=[("authorization", f"Bearer {key}")] if key else [])
        break
    except grpc.RpcError as error:
        if error.code() not in AGAIN:
            sys.exit(f"{error.code().name}: {error.details()}")
        print(f"{error.details()}; trying again", file=sys.stderr)
        time.sleep(1)
for name, submission in zip(names, answer.submissions):
    if submission.status == pb.Submission.CONFLICT:
        sys.exit(f"{name}: there is another job with this key, {submission.job_id}")
    print(submission.job_id)
