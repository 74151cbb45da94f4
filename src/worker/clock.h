#pragma once

#include <chrono>

namespace faultline::worker {

/// All times of a worker are of this process's monotonic clock.
using Clock = std::chrono::steady_clock;

}  // namespace faultline::worker
