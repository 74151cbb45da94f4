#include "worker/signals.h"

#include <ctime>

namespace faultline::worker {

Signals::Signals() {
  ::sigemptyset(&watched_);
  ::sigaddset(&watched_, SIGINT);
  ::sigaddset(&watched_, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &watched_, &before_);
}

Signals::~Signals() {
  // What came too late to be waited for must not end the process on the way out.
  constexpr timespec kNow{};
  while (::sigtimedwait(&watched_, nullptr, &kNow) > 0) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool Signals::wait_a_moment() const {
  constexpr timespec kMoment{.tv_sec = 0, .tv_nsec = 50'000'000};
  return ::sigtimedwait(&watched_, nullptr, &kMoment) > 0;
}

}  // namespace faultline::worker
