"""A worker whose handler ends in all the ways that were not expected of it.

odd_sql_worker.py DATABASE QUEUE
"""

import sys

from faultline_sql import Worker


def greet(attempt):
    how = attempt.payload["name"].partition(" in ")[0]
    if how == "exits":
        raise SystemExit("enough")
    if how == "has a surrogate":
        raise ValueError("\udcff")
    if how == "has a null":
        raise ValueError("\0")
    return {"is not JSON": object(), "returns a null": "\0"}.get(how, "fine")


Worker(sys.argv[1], sys.argv[2], {"greet": greet}).run()
