#pragma once

#include <functional>
#include <thread>

#include "base/interrupt.h"

namespace faultline::cli {

/// Turns SIGINT, SIGTERM and SIGHUP into a call on a thread of its own. Make it before any other thread,
/// which then inherits the blocked signals. If `on_signal` says so, the process then ends by that very
/// signal, so that a shell sees what happened; else it is called again for the next one.
class InterruptWatcher {
 public:
  enum class Then { die, go_on };
  explicit InterruptWatcher(std::function<Then(int signal)> on_signal);
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;
  /// Never returns if a signal has arrived that the process dies by.
  ~InterruptWatcher();

 private:
  void watch();

  std::function<Then(int)> on_signal_;
  int signals_ = -1;
  Interrupt quit_;
  std::thread thread_;
};

}  // namespace faultline::cli
