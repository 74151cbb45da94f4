#pragma once

#include "drills/movable_clock.h"
#include "support/database.h"

namespace faultline::testing {

/// Takes a test database's clock into the test's hand.
class MovableClock : public drills::MovableClock {
 public:
  explicit MovableClock(const std::string& dsn) : drills::MovableClock(connect(dsn)) {}
};

}  // namespace faultline::testing
