#include "cli/work/orphan_killer.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <vector>

namespace faultline::cli {
namespace {

/// More programs than a worker can have slots.
constexpr std::size_t kGroupsMax = 16'384;

/// A positive number announces a group, a negative one takes it back. Smaller than PIPE_BUF: several writers
/// do not mix.
void send(int pipe, pid_t message) noexcept {
  while (::write(pipe, &message, sizeof message) < 0 && errno == EINTR) {
  }
}

/// The orphan killer's life. It was forked from a process with threads, so it allocates nothing.
[[noreturn]] void watch(int pipe, std::vector<pid_t>& groups) noexcept {
  // Nothing of the process it came from is kept open or locked by it, and no Ctrl-C reaches it.
  ::setsid();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  ::prctl(PR_SET_NAME, "faultline-ward");
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDOUT_FILENO, ~0U, 0);
  pid_t message = 0;
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, &message, sizeof message);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof message) break;
    const auto known = std::ranges::find(groups, message > 0 ? 0 : -message);
    if (known != groups.end()) *known = std::max(message, 0);
  }
  for (const pid_t group : groups) {
    if (group > 0) ::kill(-group, SIGKILL);
  }
  ::_exit(0);
}

}  // namespace

OrphanKiller::OrphanKiller() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  const private_pg::FileDescriptor read_end{ends[0]};
  pipe_.reset(ends[1]);
  std::vector<pid_t> groups(kGroupsMax, 0);
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ == 0) watch(read_end.get(), groups);
}

OrphanKiller::~OrphanKiller() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void OrphanKiller::announce(pid_t group) const noexcept { send(pipe_.get(), group); }
void OrphanKiller::take_back(pid_t group) const noexcept { send(pipe_.get(), -group); }

}  // namespace faultline::cli
