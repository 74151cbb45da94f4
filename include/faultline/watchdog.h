#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "faultline/error.h"
#include "faultline/event.h"
#include "faultline/job.h"
#include "faultline/store.h"
#include "faultline/time.h"

namespace faultline {

/// What one sweep of a watchdog did, for those who count.
struct Sweep {
  const Error* error = nullptr;              ///< it failed
  std::span<const ExpiredLease> expired{};   ///< the leases that it ended
  std::span<const SweepProblem> problems{};  ///< the jobs that it could not handle
  std::optional<DatabaseTime> ended_at{};    ///< when; absent if there were none, or the database did not say
};

struct WatchdogOptions {
  std::string database;
  std::chrono::milliseconds tick{10'000};  ///< between two sweeps, with a little jitter
  std::chrono::milliseconds tidy{60'000};  ///< between two rounds of retention and counting
  EventSink log{};                         ///< empty: lines of text on standard error
  Severity log_from = Severity::info;      ///< less severe events are not reported
  std::string name{};                      ///< in the log; empty: watchdog
  /// Called after every sweep, on the watchdog's thread. Must not throw.
  std::function<void(const Sweep&)> on_sweep{};
};

/// Ends leases that ran out, so that their jobs are tried again, buried or held as they ask for; retires
/// finished jobs past their retention. Any number of watchdogs may run: a lease is ended once. A worker and a
/// server run one of their own. Works until it is destroyed, and survives the database's absence by itself.
class Watchdog {
 public:
  [[nodiscard]] static Expected<Watchdog> start(WatchdogOptions options);
  Watchdog(Watchdog&&) noexcept;
  Watchdog& operator=(Watchdog&&) noexcept;
  ~Watchdog();

 private:
  class Impl;
  explicit Watchdog(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline
