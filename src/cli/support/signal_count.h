#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace faultline::cli {

/// Counts signals, and wakes those who wait for them. Thread-safe.
class SignalCount {
 public:
  void add() {
    {
      const std::lock_guard lock{mutex_};
      ++count_;
    }
    changed_.notify_all();
  }
  /// False if `over` was said before.
  bool wait_for(int count) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return count_ >= count || over_; });
    return count_ >= count;
  }
  /// False if it has not come in this time.
  bool wait_for(int count, std::chrono::milliseconds most) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, most, [&] { return count_ >= count; });
  }
  void over() {
    {
      const std::lock_guard lock{mutex_};
      over_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  bool over_ = false;
};

}  // namespace faultline::cli
