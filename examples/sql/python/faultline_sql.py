"""A worker for Faultline that speaks SQL and nothing else. `Worker` is all of it: take it along and change it.

One job at a time: run several of these processes. A second thread, with a connection of its own, renews the lease while a
handler runs. All times are of this process's monotonic clock; the database's clock is the database's.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time

import psycopg
from psycopg.rows import dict_row


class Stopped(Exception):
    """Raised by a handler that was told to stop, and has."""


class Attempt:
    """A job in our hands, and whether to go on with it."""

    def __init__(self, job, asked_at):
        self.lease = job["id"], job["token"], job["lease_id"]  # goes with every write, as it came
        self.token = job["token"]  # grows with every claim: hand it to stores that can refuse an older writer
        self.kind = job["kind"]
        self.payload = job["payload"] if job["payload_bytes"] is None else job["payload_bytes"]
        self.ttl = job["lease_ttl"].total_seconds()
        # No lease is renewed past the job's maximum run time.
        self.end_at = asked_at + job["run_max"].total_seconds() if job["run_max"] else float("inf")
        self.stop = threading.Event()
        self.stop_reason = None
        self.over = threading.Event()  # the handler has ended
        self.renewed(asked_at)

    def renewed(self, asked_at):
        """The lease began anew at some time after `asked_at`, so it is certainly good until the deadline."""
        self.deadline = min(asked_at + self.ttl, self.end_at)
        self.beat_at = asked_at + self.ttl / 3

    def tell_to_stop(self, reason):
        if self.stop_reason != "lease_lost":  # which nothing outweighs
            self.stop_reason = reason
        self.stop.set()

    def raise_if_stopped(self):
        if time.monotonic() >= self.deadline:
            self.tell_to_stop("lease_lost")
        if self.stop.is_set():
            raise Stopped(self.stop_reason)


class Link:
    """A connection that is opened when it is needed, and opened anew after it broke. Every statement is a transaction."""

    def __init__(self, database, name, listens=False):
        self.database, self.name, self.listens, self.connection = database, name, listens, None

    def rows(self, sql, *values, seconds=10):
        """What the statement answers. Without an answer in that time the connection is given up."""
        try:
            if self.connection is None:
                self.connection = psycopg.connect(self.database, autocommit=True, row_factory=dict_row, connect_timeout=5,
                                                  tcp_user_timeout=10_000, keepalives_idle=10, keepalives_interval=5,
                                                  keepalives_count=2, application_name=self.name)
                with self.patience(seconds):
                    self.connection.execute("SET statement_timeout = '5s'")
                    if self.listens:
                        self.connection.execute("LISTEN faultline_jobs")
            with self.patience(seconds):
                return self.connection.execute(sql, values).fetchall()
        except psycopg.OperationalError:
            self.close()
            raise

    @contextlib.contextmanager
    def patience(self, seconds):
        """Hangs up after that time. A network can lose a connection without telling anybody, and psycopg would wait for ever;
        what the system does about that (keepalives) does not help if there is a proxy that still answers."""
        timer = threading.Timer(seconds, self.hang_up)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def hang_up(self):
        with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)  # the statement under way ends with an OperationalError

    def wait(self, seconds):
        """Until there is news in a queue, or there was none for so long."""
        select.select([self.connection] if self.connection else [], [], [], seconds)

    def close(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class Worker:
    """Runs `handlers` (kind: function of an Attempt) for the jobs of one queue. A handler returns the job's result; what it
    raises fails the attempt."""

    def __init__(self, database, queue, handlers):
        self.queue, self.handlers = queue, handlers
        self.name = f"psycopg-{socket.gethostname()}-{os.getpid()}"
        self.work_link, self.beat_link = Link(database, self.name, listens=True), Link(database, self.name)
        self.attempt = None
        self.draining = False
        self.sweep_at = self.tidy_at = 0

    def run(self):
        """Works until SIGTERM or SIGINT. The handler that runs is told to stop; what it does not finish is given back."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.drain)
        say(f"{self.name} works on {self.queue}")
        while not self.draining:
            try:
                self.sweep()
                asked_at = time.monotonic()
                jobs = self.work_link.rows("SELECT * FROM faultline.claim(%s, %s)", self.queue, self.name)
                for job in jobs:
                    self.work(Attempt(job, asked_at))
                if not jobs and not self.draining:
                    self.work_link.wait(1)
            except psycopg.OperationalError as error:
                say(f"the database is away: {error}")
                time.sleep(1)
            except psycopg.Error as error:  # asking again does not help: somebody has to change something
                raise SystemExit(f"{error.sqlstate}: {error}") from error
        say(f"{self.name} has ended")

    def drain(self, *_):
        self.draining = True
        if self.attempt:
            self.attempt.tell_to_stop("draining")

    def sweep(self):
        """What a Faultline server does by itself: brings back the jobs of workers that vanished, and retires old ones."""
        now = time.monotonic()
        if now >= self.sweep_at:
            self.sweep_at = now + 1
            self.work_link.rows("SELECT faultline.sweep()")
        if now >= self.tidy_at:
            self.tidy_at = now + 60
            self.work_link.rows("SELECT faultline.tidy()")

    def work(self, attempt):
        self.attempt = attempt
        if self.draining:  # the signal came with the job
            attempt.tell_to_stop("draining")
        keeper = threading.Thread(target=self.keep_lease, args=(attempt,), daemon=True)
        keeper.start()
        try:
            verb, *values = self.outcome_of(attempt)
        finally:
            attempt.over.set()
            keeper.join()  # a heartbeat that arrived after the outcome would look like that of a worker which lost its lease
        if verb:
            self.settle(attempt, verb, *values)
        self.attempt = None

    def outcome_of(self, attempt):
        """Runs the handler. No verb: there is nothing to report, because the job has gone on without us."""
        try:
            attempt.raise_if_stopped()
            if attempt.kind not in self.handlers:
                raise LookupError(f"this worker has no handler for the kind {attempt.kind}")
            outcome = "complete", json.dumps(self.handlers[attempt.kind](attempt))
        except Stopped:
            outcome = ("release",) if attempt.stop_reason == "draining" else (None,)
        except BaseException as error:  # whatever a handler raises, an exit too: the next job may be a better one
            outcome = "fail", described(error)
        return ("acknowledge_cancel", "stopped as asked") if attempt.stop_reason == "cancelled" else outcome

    def settle(self, attempt, verb, *values):
        """Sends the outcome until it is answered, or until the lease may be over. Sent twice it counts once: `repeated`
        says that the first one was committed, and only its answer was lost."""
        job = f"job {attempt.lease[0]}, token {attempt.token}"
        sql = f"SELECT * FROM faultline.{verb}({', '.join(['%s'] * (3 + len(values)))})"
        while True:
            try:
                answer, = self.work_link.rows(sql, *attempt.lease, *values)
                if answer["status"] == "stale":
                    say(f"{job}: refused: {answer['reason']}, the current token is {answer['current_token']}")
                return
            except psycopg.DataError as error:  # a result that jsonb cannot hold
                if verb != "complete":
                    raise
                return self.settle(attempt, "fail", described(error))
            except psycopg.OperationalError as error:
                if time.monotonic() > attempt.deadline:
                    return say(f"{job}: no answer; the job's history has it: {error}")
                time.sleep(attempt.ttl / 10)

    def keep_lease(self, attempt):
        """Renews the lease after a third of its TTL, and tells the handler to stop when it is not certainly good."""
        while not attempt.over.wait(max(min(attempt.beat_at, attempt.deadline) - time.monotonic(), 0)):
            asked_at = time.monotonic()
            if asked_at >= attempt.deadline:
                return attempt.tell_to_stop("lease_lost")
            try:
                # The next look at the deadline waits for this.
                beat, = self.beat_link.rows("SELECT * FROM faultline.heartbeat(%s, %s, %s)", *attempt.lease,
                                            seconds=min(10, attempt.ttl / 3))
            except psycopg.Error as error:
                say(f"a heartbeat failed: {error}")
                attempt.beat_at = asked_at + attempt.ttl / 10
                continue
            if beat["status"] == "stale":
                return attempt.tell_to_stop("lease_lost")
            if beat["cancel_requested"]:
                return attempt.tell_to_stop("cancelled")
            attempt.renewed(asked_at)


def described(error):
    """What was raised, as text that PostgreSQL takes."""
    return f"{type(error).__name__}: {error}".replace("\0", "\ufffd").encode(errors="replace").decode()


def say(text):
    print(text, file=sys.stderr, flush=True)
