#pragma once

#include <chrono>
#include <string>

namespace faultline {

/// The database's clock. Every lease is written and judged in this time and in no other, so it is a
/// type of its own: it has no `now()`, because only the database can read it, and it does not
/// compare with a worker's wall clock.
struct DatabaseClock {
  using duration = std::chrono::microseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<DatabaseClock>;
  static constexpr bool is_steady = false;
};

/// A moment in database time: microseconds since 1970-01-01 UTC, as PostgreSQL's timestamptz.
using DatabaseTime = DatabaseClock::time_point;

/// RFC 3339 in UTC with microseconds, for people and logs: `2026-01-31T12:00:00.123456Z`.
[[nodiscard]] std::string to_string(DatabaseTime time);

/// When a caller stops waiting, on its own monotonic clock.
using Deadline = std::chrono::steady_clock::time_point;

}  // namespace faultline
