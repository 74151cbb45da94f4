#!/usr/bin/env python3
"""Greets people until SIGTERM.

worker.py DATABASE QUEUE
"""

import sys

from faultline_sql import Worker


def greet(attempt):
    # Work that takes its time, and looks whether to go on: between its steps, or while it waits.
    attempt.stop.wait(attempt.payload.get("seconds", 0))
    attempt.raise_if_stopped()
    return f"hello, {attempt.payload['name']}, from psycopg"


if len(sys.argv) != 3:
    sys.exit(__doc__)
Worker(sys.argv[1], sys.argv[2], {"greet": greet}).run()
