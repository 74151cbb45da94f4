#pragma once

#include <functional>
#include <thread>

namespace faultline::cli {

/// Turns SIGINT, SIGTERM and SIGHUP into a call on a thread of its own. Make it before any other thread,
/// which then inherits the blocked signals. After `on_signal` the process ends by that very
/// signal, so that a shell sees what happened.
class InterruptWatcher {
 public:
  explicit InterruptWatcher(std::function<void(int signal)> on_signal);
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;
  /// Never returns if a signal has arrived.
  ~InterruptWatcher();

 private:
  void watch();

  std::function<void(int)> on_signal_;
  int signals_ = -1;
  int quit_ = -1;
  std::thread thread_;
};

}  // namespace faultline::cli
