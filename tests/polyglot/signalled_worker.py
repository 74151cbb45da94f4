"""A worker whose handler sends SIGTERM to the thread that it runs in, which is not the main one.

signalled_worker.py HOST:PORT QUEUE
"""

import signal
import sys
import threading

from faultline_worker import Worker


def greet(_):
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    return "done"


Worker(sys.argv[1], sys.argv[2], {"greet": greet}).run()
