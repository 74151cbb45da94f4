#pragma once

#include <algorithm>
#include <cstddef>

namespace faultline::watchdog {

/// How many jobs a sweep is to take on. One that fails, mostly because it ran out of time, is rolled back as
/// a whole, and the next one of the same size would fail again: so it gets smaller then, and grows again
/// slowly.
class SweepSize {
 public:
  static constexpr std::size_t kMost = 1'000;

  [[nodiscard]] std::size_t jobs() const { return jobs_; }
  void succeeded() { jobs_ = std::min(kMost, jobs_ + std::max<std::size_t>(1, jobs_ / 4)); }
  void failed() { jobs_ = std::max<std::size_t>(1, jobs_ / 4); }

 private:
  std::size_t jobs_ = kMost;
};

}  // namespace faultline::watchdog
