#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/event.h"
#include "faultline/handler.h"

namespace faultline {

namespace worker {
class Link;
}

/// A queue that a worker works.
struct QueueShare {
  std::string queue = "default";
  std::size_t concurrency = 0;  ///< the most handlers of this queue at once in this worker; 0: all slots
  unsigned weight = 1;          ///< when several queues have jobs, slots are shared out by weight
};

/// A worker has its jobs from a database (`database`), or through a Faultline server (`Worker::connect`).
struct WorkerOptions {
  std::string database{};  ///< a PostgreSQL URL or keyword string; empty with `Worker::connect`
  /// For `Worker::connect`; empty: what FAULTLINE_API_KEY says, if anything. It is not sent in the clear to
  /// another machine, unless the server's address ends in `?insecure=true`.
  std::string api_key{};
  std::string tls_ca{};    ///< a PEM file of authorities to trust; empty: the system's
  std::string tls_cert{};  ///< PEM files of a client certificate and its key, for a server that asks for one
  std::string tls_key{};
  std::string name{};  ///< for people: in the evidence and in logs. Empty: host and process id
  std::vector<QueueShare> queues{{}};  ///< the default queue
  std::size_t slots = 8;               ///< how many handlers run at once, each on a thread
  /// For claims and settlements, besides one for heartbeats. Through a server: calls at once.
  std::size_t connections = 2;
  std::size_t handler_connections = 4;  ///< for what handlers do: commit, once, check_fence
  /// Jobs that may be claimed ahead of a free slot. How many are depends on how long handlers take: none for
  /// long ones.
  std::size_t prefetch_max = 2'000;
  /// The longest wait between two looks at an idle queue. New jobs are announced, so this is what a lost
  /// announcement, a retry or a scheduled job may wait.
  std::chrono::milliseconds poll_max{500};
  std::chrono::milliseconds drain_max{
      30'000};           ///< how long handlers may take to finish when the worker drains
  bool listen = true;    ///< wait for announcements on a connection; else only poll
  bool watchdog = true;  ///< also end expired leases; any number of processes may. A server does it itself
  std::chrono::milliseconds watchdog_tick{10'000};  ///< between two looks for them
  /// Where executions are exported to as spans, by OTLP/HTTP with JSON: `http://host:4318` or `https://…`.
  /// Empty: nowhere.
  std::string otlp_endpoint{};
  std::string otlp_ca{};           ///< a PEM file of authorities to trust in there; empty: the system's
  double otlp_sample_ratio = 1.0;  ///< of jobs that belong to no trace; the others are as their trace says
  EventSink log{};                 ///< empty: lines of text on standard error
  Severity log_from = Severity::info;  ///< less severe events are not reported; `debug` reports every job
  /// Where Prometheus finds GET /metrics, such as `127.0.0.1:9100`; port 0: any that is free. Empty: nowhere.
  /// There are no keys and there is no TLS: listen on this machine or in a network of your own.
  std::string metrics_listen{};
};

/// How a worker ended.
struct DrainReport {
  std::size_t released = 0;  ///< jobs given back, for others to take at once
  /// Handlers that were still running at the deadline. Their jobs are among `released`, unless they must not
  /// run twice: then their leases run out.
  std::size_t abandoned = 0;
  std::size_t unsettled = 0;  ///< outcomes that could not be written down; their leases run out
};

struct WorkerStats {
  std::uint64_t claimed = 0;
  std::uint64_t settled = 0;   ///< committed outcomes of any kind
  std::uint64_t released = 0;  ///< of these, jobs that were given back and not worked, as a drain does
  std::uint64_t stale = 0;     ///< refused writes, of handlers too
  std::size_t running = 0;     ///< handlers, now
  std::size_t waiting = 0;     ///< claimed jobs that wait for a slot, now
};

/// Works jobs. Register handlers, then `run` (the life of a worker process) or `start` and `drain`.
///
///   faultline::Worker worker{{.database = url}};
///   worker.handle("welcome-mail", [](faultline::Context& ctx) { send(ctx.payload()); });
///   return worker.run() ? 0 : 1;
///
/// Thread-safe, except that handlers are registered before it starts.
class Worker {
 public:
  explicit Worker(WorkerOptions options);
  /// A worker that has its jobs through a server, and needs no access to the database. Everything works
  /// the same except `Context::commit`. It connects when it starts. This is the one thing here that needs
  /// gRPC: it is in a library of its own, faultline::remote (pkg-config: faultline-remote).
  ///
  /// `faultline://host:port`, in the clear: for this machine or a network of your own.
  /// `faultline+tls://host:port`: encrypted, and the server must have a certificate for the name. Several
  /// servers on one database, of which one is used at a time: `host:port,host:port`.
  [[nodiscard]] static Worker connect(std::string server, WorkerOptions options = {});
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  /// What was moved from can only be destroyed or assigned to.
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  /// Drains if that was not done, and waits for abandoned handlers: they refer to things that may be gone
  /// afterwards. A process that cannot wait for them ends with std::_Exit.
  ~Worker();

  /// Before it starts. A job of a kind that has no handler fails, and is tried again: another worker may have
  /// one.
  Worker& handle(std::string kind, Handler handler);
  /// Before it starts: a handler for every kind that has none of its own.
  Worker& handle_any(Handler handler);

  /// Connects and begins to work. An error says what is wrong; once started, the worker survives the
  /// database's or the server's absence by itself.
  [[nodiscard]] Expected<void> start();
  /// Stops claiming, gives back what has not begun, lets handlers finish until `drain_max`, gives back the
  /// rest. Called twice, or from several threads, it is one drain, and all calls return its report.
  DrainReport drain();
  /// Cuts a drain's wait short, even of one that begins later.
  void hurry();

  /// `start`, then waits for SIGINT or SIGTERM and drains; a second signal hurries, more change nothing.
  /// Blocks these signals in the calling thread and all it starts; call it before other threads are made.
  [[nodiscard]] Expected<DrainReport> run();

  [[nodiscard]] WorkerStats stats() const;
  [[nodiscard]] const std::string& name() const;
  /// All metrics, in Prometheus' text format.
  [[nodiscard]] std::string metrics() const;
  [[nodiscard]] std::uint16_t metrics_port() const;  ///< 0: it serves none

 private:
  class Impl;
  using OpenLink = std::function<Expected<std::unique_ptr<worker::Link>>(const WorkerOptions&)>;
  /// A worker that has its jobs through the link that this opens.
  Worker(WorkerOptions options, OpenLink open_link);

  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline
