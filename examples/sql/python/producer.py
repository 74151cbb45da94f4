#!/usr/bin/env python3
"""Adds a job for every name: to greet it, and to take some seconds about it. Prints their ids.

producer.py DATABASE QUEUE SECONDS NAME…
"""

import sys

import psycopg
from psycopg.types.json import Jsonb

if len(sys.argv) < 5:
    sys.exit(__doc__)
database, queue, seconds, *names = sys.argv[1:]
# One transaction: the jobs are there if it commits, with whatever else it writes. With a key each can be sent again when
# nobody knows whether it did: it is added once.
with psycopg.connect(database, connect_timeout=5, tcp_user_timeout=10_000, keepalives_idle=10, keepalives_interval=5,
                     keepalives_count=2) as connection:
    for name in names:
        job, = connection.execute("SELECT faultline.enqueue(%s, 'greet', %s, idempotency_key => %s)",
                                  (queue, Jsonb({"name": name, "seconds": float(seconds)}), f"greet-{name}")).fetchone()
        print(job)
