#include "cli/support/interrupt.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace faultline::cli {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // A parent that had us ignore a signal (nohup, a background job) meant it.
    struct sigaction action{};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&set, signal);
  }
  return set;
}

[[noreturn]] void die_by(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

}  // namespace

InterruptWatcher::InterruptWatcher(std::function<Then(int)> on_signal) : on_signal_(std::move(on_signal)) {
  const sigset_t set = watched_signals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  if (signals_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  thread_ = std::thread{[this] { watch(); }};
}

InterruptWatcher::~InterruptWatcher() {
  quit_.fire();
  thread_.join();
  ::close(signals_);
}

void InterruptWatcher::watch() {
  std::array<pollfd, 2> polled{pollfd{.fd = signals_, .events = POLLIN, .revents = 0},
                               pollfd{.fd = quit_.fd(), .events = POLLIN, .revents = 0}};
  for (;;) {
    while (::poll(polled.data(), polled.size(), -1) < 0 && errno == EINTR) {
    }
    if (polled[0].revents == 0) return;
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != sizeof info) return;
    const int signal = static_cast<int>(info.ssi_signo);
    if (on_signal_(signal) == Then::die) die_by(signal);
  }
}

}  // namespace faultline::cli
