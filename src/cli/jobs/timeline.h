#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "faultline/job.h"

namespace faultline::cli {

/// "350 ms", "12.3 s", "3 min 20 s", "2 h 5 min", "4 d 1 h": what a person wants to know of it.
[[nodiscard]] std::string human_duration(std::chrono::microseconds duration);

/// How long after the end of its own lease a refused write came; nothing if the lease had not run out.
[[nodiscard]] std::optional<std::chrono::microseconds> late_by(const StaleWrite& write);

struct TimelineStyle {
  DatabaseTime now{};  ///< where the life of a job that has not ended is cut off
  std::size_t width = 100;
  bool ascii = false;
};

/// A job's life over one time axis, from its creation on: a row for each attempt, each operator's act and
/// each kind of refused write, in the order in which they began, with token, worker, and how it went. Depends
/// on its arguments only.
[[nodiscard]] std::string timeline_text(const JobHistory& history, const TimelineStyle& style);

}  // namespace faultline::cli
