#pragma once

#include <csignal>
#include <functional>

namespace faultline::worker {

/// Takes SIGINT and SIGTERM out of the hands of the calling thread, and of all threads that it makes, while
/// it lives. One thread waits for them.
class Signals {
 public:
  Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals();

  /// Waits for a signal, a little while. False: none came.
  [[nodiscard]] bool wait_a_moment() const;

 private:
  sigset_t watched_{};
  sigset_t before_{};
};

}  // namespace faultline::worker
