#pragma once

#include "worker/alarm.h"
#include "worker/coordinator.h"
#include "worker/link.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// Keeps leases alive: one statement for all of the worker's leases, on the connection that is reserved for
/// it, at a third of the shortest TTL in hand. What comes back lost or cancelled is stopped. A lease counts
/// as renewed only when the database says so.
class Heartbeater {
 public:
  Heartbeater(Link& link, Coordinator& coordinator, const Log& log, const Meter& meter)
      : link_(link), coordinator_(coordinator), log_(log), meter_(meter) {}

  void run();
  void stop() { alarm_.shut_off(); }
  void expect(const Batch& batch);

 private:
  struct Round {
    std::vector<std::shared_ptr<Batch>> batches;  ///< keep the attempts alive
    std::vector<Attempt*> attempts;
    Clock::time_point next = Clock::time_point::max();
  };
  [[nodiscard]] Round due(Clock::time_point now) const;
  /// Returns when to try again if it failed.
  void beat(const std::vector<Attempt*>& attempts);
  void lost(Attempt& attempt, const Stale& stale);
  void cancelled(Attempt& attempt, const Beat& beat);

  Link& link_;
  Coordinator& coordinator_;
  const Log& log_;
  const Meter& meter_;
  Alarm alarm_;
};

}  // namespace faultline::worker
