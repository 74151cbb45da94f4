#pragma once

#include <string>
#include <vector>

#include "drills/movable_clock.h"
#include "faultline/store.h"
#include "pg/connection.h"

namespace faultline::drills {

/// A scratch database with a clock in our hand, and everybody who takes part in a race in it, each with
/// connections of its own. One race at a time. Throws DrillError.
struct RaceEnvironment {
  explicit RaceEnvironment(const std::string& dsn);

  /// A race that broke off leaves its job behind: the next ones have a queue of their own.
  void use_another_queue();

  std::string queue;
  MovableClock clock;
  Store watchdog;
  std::vector<Store> workers;
  pg::Connection auditor;

 private:
  int queues_ = 0;
};

}  // namespace faultline::drills
