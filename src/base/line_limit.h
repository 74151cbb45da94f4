#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>

namespace faultline {

/// Which of many things of a kind have a line in the log: ten a second. Thread-safe.
class LineLimit {
 public:
  /// How many had none since the last one that had; absent: this one has none.
  [[nodiscard]] std::optional<std::size_t> tell(std::chrono::steady_clock::time_point now) {
    const std::lock_guard lock{mutex_};
    if (now >= second_ + std::chrono::seconds{1}) {
      second_ = now;
      told_ = 0;
    }
    if (told_ == kEachSecond) {
      ++untold_;
      return std::nullopt;
    }
    ++told_;
    return std::exchange(untold_, 0);
  }

 private:
  static constexpr std::size_t kEachSecond = 10;
  std::mutex mutex_;  // guards all below
  std::chrono::steady_clock::time_point second_{};
  std::size_t told_ = 0;
  std::size_t untold_ = 0;
};

}  // namespace faultline
