#include "faultline/worker.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "faultline/store.h"
#include "faultline/watchdog.h"
#include "metrics/endpoint.h"
#include "metrics/metrics.h"
#include "trace/exporter.h"
#include "worker/claim_settler.h"
#include "worker/coordinator.h"
#include "worker/deadline_monitor.h"
#include "worker/executor.h"
#include "worker/heartbeater.h"
#include "worker/meter.h"
#include "worker/progress_reporter.h"
#include "worker/signals.h"
#include "worker/store_link.h"

namespace faultline {
namespace {

using worker::Clock;

/// For the last outcomes, when all handlers have finished or were given up: what is left of the drain's time,
/// within these bounds.
constexpr std::chrono::milliseconds kFlushMin{1'000};
constexpr std::chrono::milliseconds kFlushMax{10'000};
/// For the last spans, when all else is over.
constexpr std::chrono::milliseconds kSpansMax{2'000};

std::string default_name() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return "worker:" + std::to_string(::getpid());
  return std::string{host.data()} + ":" + std::to_string(::getpid());
}

WorkerOptions completed(WorkerOptions options) {
  if (options.name.empty()) options.name = default_name();
  if (!options.log) options.log = text_lines(std::cerr);
  return options;
}

Error invalid(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

std::optional<Error> check(const WorkerOptions& options, const worker::Handlers& handlers,
                           bool through_server) {
  if (handlers.empty()) return invalid("the worker has no handlers", "register one with handle() first");
  if (!through_server && options.database.empty())
    return invalid("the worker has neither a database nor a server",
                   "set WorkerOptions::database, or use Worker::connect");
  if (through_server && !options.database.empty())
    return invalid("the worker has both a database and a server",
                   "leave WorkerOptions::database empty with Worker::connect");
  if (options.queues.empty())
    return invalid("the worker has no queues", "name at least one in WorkerOptions::queues");
  if (options.slots == 0 || options.slots > 10'000) return invalid("slots is 1 to 10000", "each is a thread");
  if (options.connections == 0) return invalid("connections is at least 1", "2 are a good number");
  if (options.poll_max < std::chrono::milliseconds{1})
    return invalid("poll_max is at least 1 ms", "500 ms is usual");
  if (options.drain_max.count() < 0) return invalid("drain_max is not negative", "0 waits for no handler");
  if (auto problem = store::check_name("worker", options.name)) return problem;
  std::set<std::string_view> names;
  for (const QueueShare& share : options.queues) {
    if (!names.insert(share.queue).second)
      return invalid("the queue \"" + share.queue + "\" is named twice", "give it once, with its weight");
  }
  return std::nullopt;
}

std::vector<std::string> queue_names(const WorkerOptions& options) {
  std::vector<std::string> names;
  for (const QueueShare& share : options.queues) names.push_back(share.queue);
  return names;
}

Expected<std::unique_ptr<worker::Link>> open_database(const WorkerOptions& options,
                                                      worker::Outages& outages) {
  const auto on_reached = [&outages](const Error* error) {
    error != nullptr ? outages.failed(*error) : outages.passed();
  };
  return worker::open_store_link({.database = options.database,
                                  .worker = options.name,
                                  .connections = options.connections,
                                  .handler_connections = options.handler_connections,
                                  .on_reached = on_reached});
}

}  // namespace

class Worker::Impl {
 public:
  /// `open_link` is null for a worker on the database.
  Impl(WorkerOptions options, OpenLink open_link)
      : options_(completed(std::move(options))),
        open_link_(std::move(open_link)),
        log_(options_.log, options_.log_from, options_.name) {}

  ~Impl() {
    drain();
    for (std::thread& executor : executors_) executor.join();
  }

  void handle(std::string kind, Handler handler) {
    if (started_ != nullptr) throw std::logic_error("handlers are registered before the worker starts");
    handlers_.by_kind.insert_or_assign(std::move(kind), std::move(handler));
  }
  void handle_any(Handler handler) {
    if (started_ != nullptr) throw std::logic_error("handlers are registered before the worker starts");
    handlers_.any = std::move(handler);
  }

  Expected<void> start();
  DrainReport drain();
  void hurry() {
    hurried_ = true;
    if (Parts* parts = started_) parts->coordinator.hurry();
  }
  [[nodiscard]] WorkerStats stats() const {
    const Parts* parts = started_;
    return parts != nullptr ? parts->coordinator.stats() : WorkerStats{};
  }
  [[nodiscard]] const std::string& name() const { return options_.name; }
  [[nodiscard]] std::string metrics() const;
  [[nodiscard]] std::uint16_t metrics_port() const { return metrics_port_; }

 private:
  /// What exists from the start on.
  struct Parts {
    Parts(const WorkerOptions& options, const worker::Log& log, std::unique_ptr<worker::Link> opened,
          std::shared_ptr<metrics::Metrics> metrics)
        : link(std::move(opened)),
          meter(std::move(metrics), link->through_server()),
          coordinator({.queues = options.queues,
                       .slots = options.slots,
                       .prefetch_max = options.prefetch_max,
                       .poll_max = options.poll_max,
                       .tells_stages = !link->through_server()}),
          heartbeater(*link, coordinator, log, meter),
          deadline_monitor(coordinator, log, meter),
          progress_reporter(*link, coordinator, log, meter) {
      coordinator.on_new_batch = [this](const worker::Batch& batch) {
        deadline_monitor.expect(batch);
        heartbeater.expect(batch);
      };
    }

    std::unique_ptr<worker::Link> link;
    const worker::Meter meter;
    worker::Coordinator coordinator;
    worker::Heartbeater heartbeater;
    worker::DeadlineMonitor deadline_monitor;
    worker::ProgressReporter progress_reporter;
  };

  Expected<std::unique_ptr<Parts>> open_parts();
  Expected<void> start_exporter();
  void start_threads();
  void start_listening();
  DrainReport drain_once();
  /// Gives back what no slot has begun.
  void release_waiting();
  std::size_t abandon_running();

  [[nodiscard]] bool through_server() const { return open_link_ != nullptr; }

  const WorkerOptions options_;
  const OpenLink open_link_;
  const worker::Log log_;
  const std::shared_ptr<metrics::Metrics> metrics_ = std::make_shared<metrics::Metrics>();
  worker::Outages outages_{log_, *metrics_, through_server()};
  worker::Handlers handlers_;

  std::mutex start_mutex_;                     // keeps a start and a drain apart
  bool over_ = false;                          // guarded by start_mutex_
  std::unique_ptr<trace::Exporter> exporter_;  ///< of spans, if there is an endpoint; attempts refer to it
  std::unique_ptr<Parts> parts_;
  std::atomic<Parts*> started_{nullptr};  ///< parts_, for other threads
  std::vector<std::thread> executors_;
  std::vector<std::thread> claim_settlers_;
  std::vector<std::thread> background_threads_;
  std::optional<Watchdog> watchdog_;
  std::unique_ptr<metrics::Endpoint> endpoint_;
  std::atomic<std::uint16_t> metrics_port_{0};
  std::atomic<bool> hurried_{false};
  std::once_flag drained_;
  DrainReport report_;
};

Expected<std::unique_ptr<Worker::Impl::Parts>> Worker::Impl::open_parts() {
  if (auto problem = check(options_, handlers_, through_server()))
    return std::unexpected(std::move(*problem));
  auto link = through_server() ? open_link_(options_) : open_database(options_, outages_);
  if (!link) return std::unexpected(std::move(link.error()));
  // A misspelt queue would be idle for ever.
  if (auto problem = (*link)->check_queues(queue_names(options_)))
    return std::unexpected(std::move(*problem));
  return std::make_unique<Parts>(options_, log_, std::move(*link), metrics_);
}

Expected<void> Worker::Impl::start_exporter() {
  if (options_.otlp_endpoint.empty()) return {};
  auto exporter =
      trace::Exporter::start({.endpoint = options_.otlp_endpoint,
                              .ca_file = options_.otlp_ca,
                              .resource = {.service_name = "faultline-worker", .instance = options_.name},
                              .sample_ratio = options_.otlp_sample_ratio,
                              .log = [this](const Event& event) {
                                if (log_.wants(event.severity)) options_.log(event);
                              }});
  if (!exporter) return std::unexpected(std::move(exporter.error()));
  exporter_ = std::move(*exporter);
  return {};
}

Expected<void> Worker::Impl::start() {
  const std::lock_guard lock{start_mutex_};
  if (parts_ || over_)
    return std::unexpected(
        invalid("the worker was started or drained before", "a worker has one life; make another"));
  auto parts = open_parts();
  if (!parts) return std::unexpected(std::move(parts.error()));
  if (auto exporter = start_exporter(); !exporter) return std::unexpected(std::move(exporter.error()));
  if (options_.watchdog && !through_server()) {
    auto watchdog = Watchdog::start({.database = options_.database,
                                     .tick = options_.watchdog_tick,
                                     .log = options_.log,
                                     .log_from = options_.log_from,
                                     .name = options_.name,
                                     .on_sweep = metrics::counting(metrics_)});
    if (!watchdog) return std::unexpected(std::move(watchdog.error()));
    watchdog_.emplace(std::move(*watchdog));
  }
  std::unique_ptr<metrics::Endpoint> endpoint;
  if (!options_.metrics_listen.empty()) {
    auto opened = metrics::Endpoint::start(options_.metrics_listen, [this] { return metrics(); });
    if (!opened) return std::unexpected(std::move(opened.error()));
    endpoint = std::move(*opened);
  }
  parts_ = std::move(*parts);
  started_ = parts_.get();
  metrics_->connected(true);
  if (endpoint) metrics_port_ = endpoint->port();
  endpoint_ = std::move(endpoint);
  if (hurried_) parts_->coordinator.hurry();
  start_threads();
  log_.tell(Severity::info, "worker_started",
            {{"slots", std::to_string(options_.slots)}, {"queues", std::to_string(options_.queues.size())}});
  return {};
}

void Worker::Impl::start_threads() {
  Parts& parts = *parts_;
  // First: a link through a server must have its streams before anybody claims.
  if (options_.listen || parts.link->through_server()) start_listening();
  background_threads_.emplace_back([&parts] { parts.heartbeater.run(); });
  background_threads_.emplace_back([&parts] { parts.deadline_monitor.run(); });
  background_threads_.emplace_back([&parts] { parts.progress_reporter.run(); });
  for (std::size_t i = 0; i < options_.slots; ++i) {
    executors_.emplace_back([this, &parts] {
      const StoreOptions limits{};
      worker::Executor{
          handlers_,
          *parts.link,
          parts.coordinator,
          parts.progress_reporter,
          log_,
          parts.meter,
          exporter_.get(),
          {.payload_bytes_max = limits.payload_bytes_max, .json_depth_max = limits.json_depth_max}}
          .run();
    });
  }
  for (std::size_t i = 0; i < options_.connections; ++i) {
    claim_settlers_.emplace_back([this, &parts] {
      worker::ClaimSettler{*parts.link, parts.coordinator, log_, parts.meter, outages_}.run();
    });
  }
}

void Worker::Impl::start_listening() {
  Parts& parts = *parts_;
  const auto announced = [this, &parts](std::string_view queue) {
    // The link's thread is awake, and claims: to wake another one would take longer than to listen again.
    worker::Coordinator::Work work;
    if (parts.coordinator.announced(queue, work))
      worker::ClaimSettler{*parts.link, parts.coordinator, log_, parts.meter, outages_}.settle_and_claim(
          work);
  };
  const auto connected = [this, &parts] {
    // A server that is back is not left alone any longer. (The database may be, by other connections.)
    if (parts.link->through_server())
      worker::ClaimSettler{*parts.link, parts.coordinator, log_, parts.meter, outages_}.succeeded();
    parts.coordinator.announced_all();
  };
  parts.link->listen(queue_names(options_), {.announced = announced, .connected = connected});
}

std::string Worker::Impl::metrics() const {
  const WorkerStats now = stats();
  const std::array readings{
      metrics::Reading{.id = metrics::Id::worker_slots, .value = static_cast<double>(options_.slots)},
      metrics::Reading{.id = metrics::Id::worker_running, .value = static_cast<double>(now.running)},
      metrics::Reading{.id = metrics::Id::worker_waiting, .value = static_cast<double>(now.waiting)}};
  return metrics_->text(readings);
}

DrainReport Worker::Impl::drain() {
  std::call_once(drained_, [this] {
    {
      const std::lock_guard lock{start_mutex_};
      over_ = true;
    }
    if (parts_) report_ = drain_once();
  });
  return report_;
}

void Worker::Impl::release_waiting() {
  for (const auto& batch : parts_->coordinator.batches()) {
    for (worker::Attempt& attempt : batch->attempts) {
      if (attempt.take_away()) parts_->coordinator.add_outcome(attempt, Outcome::release());
    }
  }
}

std::size_t Worker::Impl::abandon_running() {
  std::size_t abandoned = 0;
  for (const auto& batch : parts_->coordinator.batches()) {
    for (worker::Attempt& attempt : batch->attempts) {
      if (!attempt.finish()) continue;
      log_.tell(Severity::warning, "handler_abandoned", attempt.job);
      ++abandoned;
      if (attempt.stop_reason() == StopReason::cancelled)
        parts_->coordinator.add_outcome(attempt, attempt.cancellation());
      else if (attempt.stop_reason() == StopReason::draining && may_run_twice(attempt.job.delivery))
        parts_->coordinator.add_outcome(attempt, Outcome::release());  // although its handler still runs
      else
        parts_->coordinator.drop(
            attempt);  // its lease is gone, or runs out: then it ends as its delivery class says
    }
  }
  return abandoned;
}

DrainReport Worker::Impl::drain_once() {
  DrainReport report;
  worker::Coordinator& coordinator = parts_->coordinator;
  const Clock::time_point deadline = Clock::now() + options_.drain_max;
  log_.tell(Severity::info, "worker_draining", {{"running", std::to_string(coordinator.stats().running)}});
  coordinator.stop_claiming();
  parts_->link->stop_claims();
  release_waiting();
  for (const auto& batch : coordinator.batches()) {
    for (worker::Attempt& attempt : batch->attempts) attempt.stop(StopReason::draining);
  }
  const bool all_ended = coordinator.wait_for_handlers(deadline);
  if (!all_ended) {
    // A slot that took several jobs and is stuck in one: those before it count, those after it are released
    // already.
    coordinator.fetch_finished();
    report.abandoned = abandon_running();
  }
  const Clock::time_point flushed_at =
      std::clamp(deadline, Clock::now() + kFlushMin, Clock::now() + kFlushMax);
  report.unsettled = coordinator.wait_for_outcomes(flushed_at);
  // A database that is away must not keep the worker: calls that are still under way then are given up.
  worker::Alarm time_up;
  std::thread giver_up{[&] {
    if (time_up.wait_until(flushed_at)) parts_->link->give_up();
  }};
  report.released = coordinator.given_back();
  coordinator.close();
  parts_->link->stop_listening();
  watchdog_.reset();
  parts_->heartbeater.stop();
  parts_->deadline_monitor.stop();
  parts_->progress_reporter.stop();
  for (std::thread& thread : background_threads_) thread.join();
  for (std::thread& claim_settler : claim_settlers_) claim_settler.join();
  time_up.shut_off();
  giver_up.join();
  if (all_ended) {
    for (std::thread& executor : executors_) executor.join();
    executors_.clear();
  }
  if (exporter_) exporter_->finish(Clock::now() + kSpansMax);
  const WorkerStats stats = coordinator.stats();
  log_.tell(Severity::info, "worker_exit",
            {{"settled", std::to_string(stats.settled)},
             {"stale", std::to_string(stats.stale)},
             {"released", std::to_string(report.released)},
             {"abandoned", std::to_string(report.abandoned)},
             {"unsettled", std::to_string(report.unsettled)}});
  return report;
}

Worker::Worker(WorkerOptions options) : impl_(std::make_unique<Impl>(std::move(options), nullptr)) {}
Worker::Worker(WorkerOptions options, OpenLink open_link)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(open_link))) {}
Worker::Worker(Worker&&) noexcept = default;
Worker& Worker::operator=(Worker&&) noexcept = default;
Worker::~Worker() = default;

Worker& Worker::handle(std::string kind, Handler handler) {
  impl_->handle(std::move(kind), std::move(handler));
  return *this;
}

Worker& Worker::handle_any(Handler handler) {
  impl_->handle_any(std::move(handler));
  return *this;
}

Expected<void> Worker::start() { return impl_->start(); }
DrainReport Worker::drain() { return impl_->drain(); }
void Worker::hurry() { impl_->hurry(); }
WorkerStats Worker::stats() const { return impl_->stats(); }
const std::string& Worker::name() const { return impl_->name(); }
std::string Worker::metrics() const { return impl_->metrics(); }
std::uint16_t Worker::metrics_port() const { return impl_->metrics_port(); }

Expected<DrainReport> Worker::run() {
  const worker::Signals signals;
  if (auto started = start(); !started) return std::unexpected(std::move(started.error()));
  while (!signals.wait_a_moment()) {
  }
  DrainReport report;
  std::atomic<bool> over{false};
  std::thread drain_thread{[&] {
    report = drain();
    over = true;
  }};
  while (!over) {
    if (signals.wait_a_moment()) hurry();
  }
  drain_thread.join();
  return report;
}

}  // namespace faultline
