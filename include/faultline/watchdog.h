#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "faultline/error.h"
#include "faultline/event.h"

namespace faultline {

struct WatchdogOptions {
  std::string database;
  std::chrono::milliseconds tick{10'000};  ///< between two sweeps, with a little jitter
  std::chrono::milliseconds tidy{60'000};  ///< between two rounds of retention and counting
  EventSink log{};                         ///< empty: lines of text on standard error
  Severity log_from = Severity::info;      ///< what is less is not told
  std::string name{};                      ///< in the log; empty: watchdog
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
