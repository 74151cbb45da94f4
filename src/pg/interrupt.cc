#include "pg/interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "pg/wire.h"

namespace faultline::pg {

Interrupt::Interrupt() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Interrupt::~Interrupt() { close(fd_); }

void Interrupt::fire() noexcept { static_cast<void>(eventfd_write(fd_, 1)); }

bool Interrupt::wait(Deadline deadline) const {
  short events = POLLIN;
  return wait_for_socket(fd_, events, deadline) == Ready::yes;
}

}  // namespace faultline::pg
