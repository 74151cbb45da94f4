#!/usr/bin/env python3
"""The shortest worker: for work that takes less time than a lease. worker.py is the whole one.

short_worker.py DATABASE QUEUE
"""

import sys
import time

import psycopg
from psycopg.types.json import Jsonb


def handle(kind, payload):
    return f"hello, {payload['name']}, from {kind}"


# It ends when its connection does, and whatever started it starts it again. A network can lose a connection without telling
# anybody: then the system finds out.
database = psycopg.connect(sys.argv[1], autocommit=True, connect_timeout=5, tcp_user_timeout=10_000, keepalives_idle=10,
                           keepalives_interval=5, keepalives_count=2)
while True:
    job = database.execute("SELECT id, token, lease_id, kind, payload FROM faultline.claim(%s)", (sys.argv[2],)).fetchone()
    if job is None:
        time.sleep(1)
        continue
    *lease, kind, payload = job
    try:
        verb, value = "complete", Jsonb(handle(kind, payload))
    except Exception as error:
        verb, value = "fail", repr(error)
    answer = database.execute(f"SELECT status, reason FROM faultline.{verb}(%s, %s, %s, %s)", (*lease, value)).fetchone()
    if answer[0] == "stale":
        print(f"job {lease[0]} has gone on without us: {answer[1]}", file=sys.stderr)
