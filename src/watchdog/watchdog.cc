#include "faultline/watchdog.h"

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/traceparent.h"
#include "faultline/store.h"
#include "watchdog/sweep_size.h"

namespace faultline {
namespace {

using Clock = std::chrono::steady_clock;

/// A mass expiry is worked off in sweeps with a breath between them, for the database's sake.
constexpr std::chrono::milliseconds kBreath{20};
/// Up to this many leases that a sweep ended have lines of their own.
constexpr std::size_t kToldSingly = 10;

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
    tell_expired(swept->expired);
    for (const SweepProblem& problem : swept->problems) {
      tell(Severity::error, "sweep_problem",
           {.job = problem.job, .queue = problem.queue, .fields = {{"message", problem.message}}});
    }
    return swept->more;
  }

  void tell_expired(const std::vector<ExpiredLease>& expired) const {
    // A mass expiry is one thing that happened, and one line.
    const bool many = expired.size() > kToldSingly;
    if (many) {
      std::map<Loss, std::size_t> losses;
      std::set<std::string_view> workers;
      for (const ExpiredLease& lease : expired) {
        ++losses[lease.loss];
        workers.insert(lease.worker);
      }
      Event event{.fields = {{"leases", std::to_string(expired.size())},
                             {"workers", std::to_string(workers.size())},
                             {"lost_by", std::string{*workers.begin()}}}};
      for (const auto& [loss, count] : losses)
        event.fields.emplace_back(to_string(loss), std::to_string(count));
      tell(Severity::warning, "leases_expired", std::move(event));
    }
    const Severity severity = many ? Severity::debug : Severity::warning;
    if (severity < options_.log_from) return;
    for (const ExpiredLease& lease : expired) {
      Event event{.job = lease.job,
                  .token = lease.token,
                  .queue = lease.queue,
                  .attempt = lease.attempt,
                  .fields = {{"lost_by", lease.worker},
                             {"next_state", std::string{to_string(lease.next_state)}},
                             {"loss", std::string{to_string(lease.loss)}}}};
      if (lease.traceparent) event.fields.emplace_back("trace_id", trace_id_of(lease.traceparent));
      tell(severity, "lease_expired", std::move(event));
    }
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
    if (error != nullptr && !lost_at_) {
      lost_at_ = Clock::now();
      const bool locked = error->code == ErrorCode::locked;
      tell(locked ? Severity::warning : Severity::error, locked ? "database_locked" : "database_lost",
           {.fields = {{"error", error->describe()}}});
    }
    if (error == nullptr && lost_at_) {
      const auto lasted = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - *lost_at_);
      tell(Severity::info, "database_back", {.fields = {{"lasted_ms", std::to_string(lasted.count())}}});
      lost_at_.reset();
    }
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
  std::optional<Clock::time_point> lost_at_;
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
