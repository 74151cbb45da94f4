#pragma once

#include "faultline/time.h"

namespace faultline {

/// Ends the waits of one thread from another, once and for good: its descriptor is readable from then on, and
/// goes into a poll() or into pg's `ConnectOptions::interrupt_fd`. Thread-safe.
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

/// The milliseconds from now to then, rounded up, as poll() takes them; 0 when it is past.
[[nodiscard]] int poll_timeout_ms(Deadline deadline);

}  // namespace faultline
