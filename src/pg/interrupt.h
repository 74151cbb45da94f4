#pragma once

#include "faultline/time.h"

namespace faultline::pg {

/// Ends the waits of one thread from another, once and for good: its descriptor goes into
/// `ConnectOptions::interrupt_fd`. Thread-safe.
class Interrupt {
 public:
  Interrupt();  ///< throws std::system_error when the process has no descriptor left
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  void fire() noexcept;
  /// Whether it was fired before the deadline.
  [[nodiscard]] bool wait(Deadline deadline) const;
  [[nodiscard]] bool fired() const { return wait(Deadline::min()); }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace faultline::pg
