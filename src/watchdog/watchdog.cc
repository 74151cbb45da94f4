#include "faultline/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <random>
#include <thread>

#include "base/traceparent.h"
#include "faultline/store.h"
#include "watchdog/sweep_size.h"

namespace faultline {
namespace {

using Clock = std::chrono::steady_clock;

/// A mass expiry is worked off in sweeps with a breath between them, for the database's sake.
constexpr std::chrono::milliseconds kBreath{20};

}  // namespace

class Watchdog::Impl {
 public:
  Impl(WatchdogOptions options, Store store) : options_(std::move(options)), store_(std::move(store)) {
    thread_ = std::thread{[this] { run(); }};
  }
  ~Impl() {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    changed_.notify_one();
    // A sweep that is cut off here has changed nothing, or is done by the next watchdog.
    store_.give_up();
    thread_.join();
  }

 private:
  void run() {
    // The first sweep comes at once: it may be the first process after a night without any.
    Clock::time_point tidy_at = Clock::now() + options_.tidy;
    std::chrono::milliseconds wait{0};
    while (sleep(wait)) {
      const bool more = sweep();
      if (Clock::now() >= tidy_at) {
        tidy();
        tidy_at = Clock::now() + options_.tidy;
      }
      // Several watchdogs spread out by themselves.
      std::uniform_real_distribution<double> spread{0.9, 1.1};
      wait = more ? kBreath
                  : std::chrono::duration_cast<std::chrono::milliseconds>(options_.tick * spread(jitter_));
    }
  }

  /// False: it is time to go.
  bool sleep(std::chrono::milliseconds how_long) {
    std::unique_lock lock{mutex_};
    return !changed_.wait_for(lock, how_long, [&] { return stopped_; });
  }

  bool sweep() {
    auto swept = store_.expire_leases(size_.jobs());
    swept ? size_.succeeded() : size_.failed();
    reached(swept ? nullptr : &swept.error());
    if (options_.on_sweep) report(swept);
    if (!swept) return false;
    for (const ExpiredLease& lease : swept->expired) {
      Event event{
          .job = lease.job,
          .token = lease.token,
          .queue = lease.queue,
          .attempt = lease.attempt,
          .fields = {{"lost_by", lease.worker}, {"next_state", std::string{to_string(lease.next_state)}}}};
      if (lease.traceparent) event.fields.emplace_back("trace_id", trace_id_of(lease.traceparent));
      tell(Severity::warning, "lease_expired", std::move(event));
    }
    for (const SweepProblem& problem : swept->problems) {
      tell(Severity::error, "sweep_problem",
           {.job = problem.job, .queue = problem.queue, .fields = {{"message", problem.message}}});
    }
    return swept->more;
  }

  void report(const Expected<SweepReport>& swept) {
    if (!swept) return options_.on_sweep({.error = &swept.error()});
    Sweep sweep{.expired = swept->expired, .problems = swept->problems};
    if (!sweep.expired.empty()) {
      if (const auto now = store_.now()) sweep.ended_at = *now;
    }
    options_.on_sweep(sweep);
  }

  void tidy() {
    constexpr std::size_t kBatch = 1'000;
    for (;;) {
      auto pruned = store_.prune(kBatch);
      reached(pruned ? nullptr : &pruned.error());
      if (!pruned || std::max({pruned->jobs, pruned->dead, pruned->keys, pruned->stale_writes}) < kBatch)
        break;
      if (!sleep(kBreath)) return;
    }
    for (;;) {
      const auto folded = store_.fold_counts();
      if (!folded || !*folded) break;
      if (!sleep(kBreath)) return;
    }
  }

  void reached(const Error* error) {
    if (error != nullptr && !sleep({})) return;  // given up
    if (error != nullptr && !lost_)
      tell(Severity::error, "database_lost", {.fields = {{"error", error->describe()}}});
    if (error == nullptr && lost_) tell(Severity::info, "database_back", {});
    lost_ = error != nullptr;
  }

  void tell(Severity severity, std::string_view name, Event event) const {
    if (severity < options_.log_from) return;
    event.name = name;
    event.severity = severity;
    event.at = std::chrono::system_clock::now();
    event.worker = options_.name;
    options_.log(event);
  }

  const WatchdogOptions options_;
  Store store_;
  bool lost_ = false;
  watchdog::SweepSize size_;
  std::minstd_rand jitter_{std::random_device{}()};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

Watchdog::Watchdog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Watchdog::Watchdog(Watchdog&&) noexcept = default;
Watchdog& Watchdog::operator=(Watchdog&&) noexcept = default;
Watchdog::~Watchdog() = default;

Expected<Watchdog> Watchdog::start(WatchdogOptions options) {
  using std::chrono::milliseconds;
  if (options.tick < milliseconds{1} || options.tidy < milliseconds{1}) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "a watchdog's tick and tidy are at least 1 ms",
                                 .hint = "10 s and 60 s are usual"});
  }
  if (options.name.empty()) options.name = "watchdog";
  if (!options.log) options.log = text_lines(std::cerr);
  auto store = Store::open({.database = options.database,
                            .application_name = "faultline watchdog " + options.name,
                            .connections_max = 1,
                            .call_timeout = milliseconds{10'000}});
  if (!store) return std::unexpected(std::move(store.error()));
  return Watchdog{std::make_unique<Impl>(std::move(options), std::move(*store))};
}

}  // namespace faultline
