"""A worker for Faultline over gRPC. `Worker` is all of it: take it along and change it.

Threads: one reads the stream of jobs, one renews leases, and each handler has one. Credit bounds the handlers, so no job
waits here. All times are of this process's monotonic clock.
"""

import json
import os
import queue
import random
import signal
import socket
import sys
import threading
import time

import grpc
from faultline.v1 import faultline_pb2 as pb
from faultline.v1 import faultline_pb2_grpc as pb_grpc

# Asking again does not help: somebody has to change something.
HOPELESS = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.UNIMPLEMENTED)

# A network can lose a connection without telling anybody, and a stream that waits for jobs would wait for ever. So the
# channel asks every now and then whether the other end is still there. A server allows that every 5 s.
CHANNEL = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5000), ("grpc.http2.max_pings_without_data", 0),
           ("grpc.min_reconnect_backoff_ms", 5000), ("grpc.max_reconnect_backoff_ms", 5000)]


class Stopped(Exception):
    """Raised by a handler that was told to stop, and has."""


class Attempt:
    """A job in our hands, and whether to go on with it."""

    def __init__(self, job, asked_at):
        self.job = job
        self.payload = json.loads(job.payload or b"null") if job.encoding == pb.ENCODING_JSON else job.payload
        self.token = job.lease.token  # grows with every claim: hand it to stores that can refuse an older writer
        self.ttl = job.lease_ttl_ms / 1000
        # No lease is renewed past the job's maximum run time.
        self.end_at = asked_at + job.run_max_ms / 1000 if job.HasField("run_max_ms") else float("inf")
        self.stop = threading.Event()
        self.stop_reason = None
        self.reporting = False
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
        if self.stop.is_set():
            raise Stopped(self.stop_reason)


class Worker:
    """Runs `handlers` (kind: function of an Attempt) for the jobs of one queue. A handler returns the job's result, or a
    pb.Outcome; what it raises fails the attempt."""

    def __init__(self, address, queue_name, handlers, slots=4, drain_max=30):
        self.stub = pb_grpc.FaultlineStub(grpc.insecure_channel(address, CHANNEL))
        key = os.environ.get("FAULTLINE_API_KEY")
        self.metadata = [("authorization", f"Bearer {key}")] if key else []
        self.queue_name, self.handlers, self.slots, self.drain_max = queue_name, handlers, slots, drain_max
        self.name = f"python-{socket.gethostname()}-{os.getpid()}"
        self.lock = threading.Lock()
        self.beating = threading.Lock()  # held while heartbeats are on their way
        self.running = set()  # attempts
        self.begun = threading.Event()  # attempts that the keeper of leases has not seen yet
        self.draining = threading.Event()
        self.failure = None
        self.new_stream()

    def run(self):
        """Works until SIGTERM or SIGINT, then lets go of its jobs in an orderly way."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.draining.set())
        threading.Thread(target=self.keep_leases, daemon=True).start()
        reader = threading.Thread(target=self.keep_stream, daemon=True)
        reader.start()
        say(f"{self.name} works on {self.queue_name}")
        # Python runs the handler of a signal in this thread. If the system gave the signal to another one, nothing wakes this
        # one up for it, so it looks by itself.
        while not self.draining.wait(0.5):
            pass
        self.drain(reader)
        if self.failure:
            raise SystemExit(self.failure)

    # The stream: jobs come as far as we grant credit.

    def new_stream(self):
        self.grants = queue.SimpleQueue()  # messages to send; None ends our side
        self.sequence = self.received = 0
        self.asked_at = {}  # when a message was sent, by its sequence

    def grant(self):
        """Grants a job for each free slot. Credit counts from the beginning of the stream. Called under the lock."""
        self.sequence += 1
        self.asked_at[self.sequence] = time.monotonic()
        self.grants.put(pb.StreamJobsRequest(queue=self.queue_name, worker=self.name, sequence=self.sequence,
                                             credit=self.received + self.slots - len(self.running)))

    def keep_stream(self):
        delay = 0.1
        while not self.draining.is_set():
            try:
                self.read_stream()
            except grpc.RpcError as error:
                say(f"the stream broke: {error.code().name}: {error.details()}")
                if error.code() in HOPELESS:
                    self.failure = error.details()
                    self.draining.set()
            except Exception as error:  # this thread has to go on: without it no job would ever come again
                say(f"the stream is given up: {described(error)}")
            delay = 0.1 if self.received else min(delay * 2, 5)
            self.draining.wait(delay * random.uniform(0.5, 1))

    def read_stream(self):
        with self.lock:
            if self.draining.is_set():
                return
            self.new_stream()
            self.grant()
            stream = self.stub.StreamJobs(iter(self.grants.get, None), metadata=self.metadata)
        try:
            for response in stream:
                self.begin(response)
                if response.going_away:
                    return  # this server stops: on to the next one
        finally:
            self.grants.put(None)
            stream.cancel()

    def begin(self, response):
        with self.lock:
            # These leases began after the server had read that message, so after we sent it.
            attempts = [Attempt(job, self.asked_at[response.sequence]) for job in response.jobs]
        # On a grant that has been waiting: make sure of the lease before anything is done.
        self.beat([attempt for attempt in attempts if attempt.beat_at <= time.monotonic()])
        with self.lock:
            self.received += len(attempts)
            self.running.update(attempts)
            self.asked_at = {number: at for number, at in self.asked_at.items() if number >= response.sequence}
        self.begun.set()
        for attempt in attempts:
            threading.Thread(target=self.work, args=(attempt,), daemon=True).start()

    # One job.

    def work(self, attempt):
        try:
            outcome = self.outcome_of(attempt)
            if outcome:
                self.report(attempt, outcome)
        except Exception as error:  # the lease runs out, and the job comes again
            say(f"job {attempt.job.lease.job_id}, token {attempt.token}: not reported: {described(error)}")
        finally:  # whatever happened, the slot is free
            with self.lock:
                self.running.discard(attempt)
                self.grant()

    def outcome_of(self, attempt):
        """Runs the handler. None: there is nothing to report, because the job has gone on without us."""
        if self.draining.is_set():
            attempt.tell_to_stop("draining")
        if time.monotonic() >= attempt.deadline:
            attempt.tell_to_stop("lease_lost")
        try:
            attempt.raise_if_stopped()
            if attempt.job.kind not in self.handlers:
                raise LookupError(f"this worker has no handler for the kind {attempt.job.kind}")
            result = self.handlers[attempt.job.kind](attempt)
            outcome = result if isinstance(result, pb.Outcome) else succeeded(result)
        except Stopped:
            outcome = pb.Outcome(kind=pb.Outcome.RELEASED) if attempt.stop_reason == "draining" else None
        except BaseException as error:  # whatever a handler raises; an exit would end this thread alone
            outcome = pb.Outcome(kind=pb.Outcome.FAILED, error=described(error))
        if attempt.stop_reason == "cancelled":
            return pb.Outcome(kind=pb.Outcome.CANCELLED, error="stopped as asked")
        return outcome

    def report(self, attempt, outcome):
        """Sends the outcome until it is answered, or until the lease may be over."""
        with self.beating:  # a heartbeat that arrived after the outcome would look like that of a worker which lost its lease
            attempt.reporting = True
        request = pb.ReportResultRequest(results=[pb.Result(lease=attempt.job.lease, outcome=outcome)])
        while True:
            try:
                if self.call(self.stub.ReportResult, request).verdicts[0].status == pb.Verdict.COMMITTED:
                    return
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.FAILED_PRECONDITION, *HOPELESS):
                    say(f"job {attempt.job.lease.job_id}, token {attempt.token}: refused: {error.details()}")
                    return
            if time.monotonic() > attempt.deadline:
                say(f"job {attempt.job.lease.job_id}, token {attempt.token}: no answer; the job's history has it")
                return
            # Again: it may have been committed, and only the answer is missing.
            time.sleep(attempt.ttl / 10)

    def call(self, method, request, timeout=10):
        return method(request, metadata=self.metadata, timeout=timeout)

    # Leases: renewed after a third of their TTL. A handler whose lease is not certainly good any more is told to stop.

    def keep_leases(self):
        while True:
            self.begun.clear()
            with self.beating:
                now = time.monotonic()
                with self.lock:
                    kept = [attempt for attempt in self.running if not attempt.reporting and attempt.stop_reason != "lease_lost"]
                for attempt in kept:
                    if now >= attempt.deadline:
                        attempt.tell_to_stop("lease_lost")
                self.beat([attempt for attempt in kept if attempt.beat_at <= now < attempt.deadline])
            next_at = min((min(attempt.beat_at, attempt.deadline) for attempt in kept), default=now + 60)
            self.begun.wait(max(next_at - time.monotonic(), 0.01))

    def beat(self, attempts):
        if not attempts:
            return
        asked_at = time.monotonic()
        try:
            # The next look at the deadlines waits for this.
            beats = self.call(self.stub.Heartbeat, pb.HeartbeatRequest(leases=[a.job.lease for a in attempts]),
                              timeout=min(10, *(a.ttl / 3 for a in attempts))).beats
        except grpc.RpcError as error:
            say(f"a heartbeat failed: {error.code().name}: {error.details()}")
            for attempt in attempts:
                attempt.beat_at = asked_at + attempt.ttl / 10
            return
        for attempt, beat in zip(attempts, beats):
            if beat.status == pb.Beat.RENEWED:
                attempt.renewed(asked_at)
            elif beat.status == pb.Beat.CANCEL_REQUESTED:
                attempt.beat_at = float("inf")
                attempt.tell_to_stop("cancelled")
            else:
                attempt.tell_to_stop("lease_lost")

    # The end.

    def drain(self, reader):
        end = time.monotonic() + self.drain_max
        with self.lock:
            self.grants.put(None)  # the server ends the stream; what it has sent until then is released
            running = list(self.running)
        for attempt in running:
            attempt.tell_to_stop("draining")
        reader.join(self.drain_max)
        while self.running and time.monotonic() < end:
            time.sleep(0.05)
        for attempt in list(self.running):  # handlers that did not look; the process ends under them
            if attempt.job.delivery == pb.DELIVERY_AT_LEAST_ONCE and not attempt.reporting:
                self.report(attempt, pb.Outcome(kind=pb.Outcome.RELEASED))
        say(f"{self.name} has ended")


def succeeded(result):
    return pb.Outcome(kind=pb.Outcome.SUCCEEDED, result=json.dumps(result).encode())


def described(error):
    """What was raised, as text that can be sent."""
    return f"{type(error).__name__}: {error}".encode(errors="replace").decode()


def say(text):
    print(text, file=sys.stderr, flush=True)
