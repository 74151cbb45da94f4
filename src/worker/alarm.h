#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "worker/attempt.h"

namespace faultline::worker {

/// Wakes one thread at a moment that others may bring forward. Thread-safe.
class Alarm {
 public:
  /// Waits until `at`, or an earlier moment that somebody asks for. False: it was shut off.
  [[nodiscard]] bool wait_until(Clock::time_point at) {
    std::unique_lock lock{mutex_};
    at_ = std::min(at, asked_);
    while (!off_ && Clock::now() < at_) {
      const Clock::time_point until = at_;
      changed_.wait_until(lock, until);
    }
    asked_ = at_ = Clock::time_point::max();
    return !off_;
  }

  void ask(Clock::time_point at) {
    const std::lock_guard lock{mutex_};
    asked_ = std::min(asked_, at);
    if (at >= at_) return;
    at_ = at;
    changed_.notify_one();
  }

  void shut_off() {
    const std::lock_guard lock{mutex_};
    off_ = true;
    changed_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  // What is asked for while nobody waits counts for the next wait.
  Clock::time_point asked_ = Clock::time_point::max();
  Clock::time_point at_ = Clock::time_point::max();
  bool off_ = false;
};

}  // namespace faultline::worker
