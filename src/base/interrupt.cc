#include "base/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <system_error>

namespace faultline {

Interrupt::Interrupt() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Interrupt::~Interrupt() { close(fd_); }

void Interrupt::fire() noexcept { static_cast<void>(eventfd_write(fd_, 1)); }

bool Interrupt::wait(Deadline deadline) const {
  for (;;) {
    pollfd poller{.fd = fd_, .events = POLLIN, .revents = 0};
    const int ready = poll(&poller, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (ready == 0 && Deadline::clock::now() >= deadline) return false;
  }
}

int poll_timeout_ms(Deadline deadline) {
  const auto now = Deadline::clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return left > INT_MAX ? INT_MAX : static_cast<int>(left);
}

}  // namespace faultline
