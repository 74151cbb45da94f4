#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace faultline::pg {

/// Waits with full jitter: each is drawn evenly between nothing and a ceiling that doubles from
/// `min` to `max`, so that clients that failed together do not come back together. Not thread-safe.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds min, std::chrono::milliseconds max, std::mt19937::result_type seed)
      : ceiling_(min), max_(max), random_(seed) {}

  [[nodiscard]] std::chrono::milliseconds next() {
    std::uniform_int_distribution<std::chrono::milliseconds::rep> draw{0, ceiling_.count()};
    ceiling_ = std::min(ceiling_ * 2, max_);
    return std::chrono::milliseconds{draw(random_)};
  }

 private:
  std::chrono::milliseconds ceiling_;
  std::chrono::milliseconds max_;
  std::mt19937 random_;
};

}  // namespace faultline::pg
