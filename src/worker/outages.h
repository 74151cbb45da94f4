#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "faultline/error.h"
#include "metrics/metrics.h"
#include "worker/clock.h"
#include "worker/log.h"

namespace faultline::worker {

/// Tells when the other side is lost, by whoever finds out first, and when it is back, and after how long.
/// One that comes and goes is told of once in ten seconds, with how often it was not. Thread-safe.
class Outages {
 public:
  Outages(const Log& log, metrics::Metrics& metrics, bool through_server)
      : log_(log), metrics_(metrics), through_server_(through_server) {}

  void failed(const Error& error);
  void passed();

 private:
  struct Outage {
    Clock::time_point since{};
    bool locked = false;  ///< it answers, and somebody else's lock is in the way
    bool told = false;
  };

  const Log& log_;
  metrics::Metrics& metrics_;
  const bool through_server_;
  std::mutex mutex_;  // guards all below
  std::optional<Outage> outage_;
  std::optional<Clock::time_point> told_at_;
  std::size_t untold_ = 0;
};

}  // namespace faultline::worker
