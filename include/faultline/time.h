#pragma once

#include <chrono>
#include <iosfwd>
#include <string>

#include "faultline/language.h"

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

  /// The moment that people call by this name, such as tomorrow at eight; what a worker's clock shows right
  /// now is not what the database's shows. Also what `std::chrono::clock_cast` goes by.
  template <class Duration>
  [[nodiscard]] static constexpr time_point from_sys(std::chrono::sys_time<Duration> moment) {
    return time_point{std::chrono::floor<duration>(moment.time_since_epoch())};
  }
  [[nodiscard]] static constexpr std::chrono::sys_time<duration> to_sys(time_point moment) {
    return std::chrono::sys_time<duration>{moment.time_since_epoch()};
  }
};

/// A moment in database time: microseconds since 1970-01-01 UTC, as PostgreSQL's timestamptz.
using DatabaseTime = DatabaseClock::time_point;

/// RFC 3339 in UTC with microseconds, for people and logs: `2026-01-31T12:00:00.123456Z`.
[[nodiscard]] std::string to_string(DatabaseTime time);
std::ostream& operator<<(std::ostream& out, DatabaseTime time);

/// When a caller stops waiting, on its own monotonic clock.
using Deadline = std::chrono::steady_clock::time_point;

}  // namespace faultline
