#pragma once

#include "worker/alarm.h"
#include "worker/coordinator.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// Stops what has no time left, by this process's own clock and without asking anybody: an attempt whose
/// lease was not renewed in time, or whose job's maximum run time is over. Also gives back jobs that were
/// claimed ahead and wait for a slot longer than anybody expected.
class DeadlineMonitor {
 public:
  DeadlineMonitor(Coordinator& coordinator, const Log& log, const Meter& meter)
      : coordinator_(coordinator), log_(log), meter_(meter) {}

  void run();
  void stop() { alarm_.shut_off(); }
  void expect(const Batch& batch);

 private:
  /// When to look next.
  [[nodiscard]] Clock::time_point check(Clock::time_point now);
  void out_of_time(Attempt& attempt, Clock::time_point now);

  Coordinator& coordinator_;
  const Log& log_;
  const Meter& meter_;
  Alarm alarm_;
};

}  // namespace faultline::worker
