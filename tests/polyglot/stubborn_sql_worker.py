"""A worker whose handler does not look whether to stop, and ends only when a file is there. FILE.begun says that it runs.

stubborn_sql_worker.py DATABASE QUEUE FILE
"""

import os
import sys
import time

from faultline_sql import Worker


def greet(_):
    open(sys.argv[3] + ".begun", "w").close()
    while not os.path.exists(sys.argv[3]):
        time.sleep(0.02)
    return "late"


Worker(sys.argv[1], sys.argv[2], {"greet": greet}).run()
