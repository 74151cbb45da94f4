#pragma once

#include <optional>
#include <string>
#include <utility>

#include "drills/movable_clock.h"
#include "support/database.h"

namespace faultline::testing {

/// Takes a test database's clock into the test's hand.
class MovableClock {
 public:
  explicit MovableClock(const std::string& dsn) : clock_(drills::MovableClock{connect(dsn)}) {}
  /// Of a database with a clock (Template::clocked). Most tests never move it, and a connection costs as much
  /// as a short test, so it is opened when it is needed.
  explicit MovableClock(const TestDatabase& database) : dsn_(database.dsn()) {}

  void advance(std::chrono::microseconds by) { clock().advance(by); }
  void set(DatabaseTime at) { clock().set(at); }

 private:
  drills::MovableClock& clock() {
    if (!clock_) clock_.emplace(connect(dsn_), drills::MovableClock::Installed{});
    return *clock_;
  }

  std::string dsn_;
  std::optional<drills::MovableClock> clock_;
};

}  // namespace faultline::testing
