#include "private_pg/process.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// glibc 2.36 declares these without C linkage.
extern "C" {
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace faultline::private_pg {
namespace {

namespace fs = std::filesystem;

struct PasswdEntry {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;
};

template <class Lookup>
std::optional<PasswdEntry> passwd_entry(Lookup lookup) {
  std::vector<char> buffer(16'384);
  passwd entry{};
  passwd* found = nullptr;
  if (lookup(&entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return std::nullopt;
  return PasswdEntry{found->pw_uid, found->pw_gid, found->pw_name};
}

std::optional<PasswdEntry> user_by_name(const char* name) {
  return passwd_entry([&](auto... rest) { return ::getpwnam_r(name, rest...); });
}

std::optional<PasswdEntry> user_by_id(uid_t uid) {
  return passwd_entry([&](auto... rest) { return ::getpwuid_r(uid, rest...); });
}

std::vector<gid_t> groups_of(const PasswdEntry& user) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  if (::getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
    if (::getgrouplist(user.name.c_str(), user.gid, groups.data(), &count) < 0) return {user.gid};
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

/// Everything a child needs between fork and exec, made before the fork: this program may have other
/// threads, so the child may call async-signal-safe functions only.
struct ExecPlan {
  std::vector<char*> argv;
  std::vector<char*> environment;
  const ServerUser* user = nullptr;
  int input = -1;
  int output = -1;
  bool die_with_parent = false;
  pid_t parent = 0;
};

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Async-signal-safe. Never root again: PostgreSQL would refuse, and so do we.
bool become(const ServerUser& user) {
  if (!user.drop_privileges) return true;
  return ::setgroups(user.groups.size(), user.groups.data()) == 0 &&
         ::setresgid(user.gid, user.gid, user.gid) == 0 && ::setresuid(user.uid, user.uid, user.uid) == 0;
}

void reset_signals() {
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// Async-signal-safe; returns only when it failed, with errno set.
void exec_as_planned(const ExecPlan& plan) {
  reset_signals();
  if (::dup2(plan.input, 0) < 0 || ::dup2(plan.output, 1) < 0 || ::dup2(plan.output, 2) < 0) return;
  if (!become(*plan.user)) return;
  if (plan.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);  // it died before we asked
  }
  ::umask(077);
  if (::chdir("/") != 0) return;
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(plan.argv[0], plan.argv.data(), plan.environment.data());
}

/// What the child tells its parent through a pipe that a successful exec closes.
struct ChildReport {
  pid_t pid = 0;
  int error = 0;
};

void tell(int pipe, ChildReport report) {
  [[maybe_unused]] const ssize_t ignored = ::write(pipe, &report, sizeof report);
}

[[noreturn]] void detached_child(const ExecPlan& plan, int pipe) {
  ::setsid();
  const pid_t server = ::fork();
  if (server < 0) tell(pipe, {0, errno});
  if (server != 0) ::_exit(0);
  tell(pipe, {::getpid(), 0});
  exec_as_planned(plan);
  tell(pipe, {0, errno});
  ::_exit(127);
}

[[noreturn]] void attached_child(const ExecPlan& plan, int pipe) {
  ::setsid();
  exec_as_planned(plan);
  tell(pipe, {0, errno});
  ::_exit(127);
}

void wait_for_child(pid_t child, int* status) {
  while (::waitpid(child, status, 0) < 0 && errno == EINTR) {
  }
}

struct Spawned {
  pid_t child = 0;   ///< what fork returned
  pid_t server = 0;  ///< what a detached child said of itself
};

std::expected<Spawned, std::string> spawn(const Command& command, bool detached) {
  auto argv = command.argv;
  std::vector<std::string> environment{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"};
  const FileDescriptor null{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  std::array<int, 2> ends{};
  if (!null.valid() || ::pipe2(ends.data(), O_CLOEXEC) != 0) return std::unexpected(errno_text(errno));
  const FileDescriptor reading{ends[0]};
  FileDescriptor writing{ends[1]};
  const ExecPlan plan{.argv = pointers_to(argv),
                      .environment = pointers_to(environment),
                      .user = command.user,
                      .input = null.get(),
                      .output = command.output >= 0 ? command.output : null.get(),
                      .die_with_parent = !detached,
                      .parent = ::getpid()};

  Spawned spawned;
  spawned.child = ::fork();
  if (spawned.child < 0) return std::unexpected(errno_text(errno));
  if (spawned.child == 0) {
    if (detached) detached_child(plan, writing.get());
    attached_child(plan, writing.get());
  }
  writing.reset();
  int error = 0;
  ChildReport report;
  while (true) {
    const ssize_t count = ::read(reading.get(), &report, sizeof report);
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof report) break;
    if (report.pid != 0) spawned.server = report.pid;
    if (report.error != 0) error = report.error;
  }
  if (detached || error != 0) wait_for_child(spawned.child, nullptr);
  if (error != 0) return std::unexpected("cannot run " + command.argv[0] + ": " + errno_text(error));
  return spawned;
}

bool same_directory(const fs::path& left, const fs::path& right) {
  struct stat a{}, b{};
  return ::stat(left.c_str(), &a) == 0 && ::stat(right.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

std::optional<pid_t> parse_pid(std::string_view text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc{} || end != text.data() + text.size() || pid <= 0) return std::nullopt;
  return pid;
}

std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
  return "failed with exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Expected<ServerUser> choose_server_user(const fs::path& cluster) {
  const uid_t self = ::geteuid();
  if (self != 0) {
    const auto entry = user_by_id(self);
    return ServerUser{.uid = self,
                      .gid = ::getegid(),
                      .groups = {},
                      .name = entry ? entry->name : std::to_string(self),
                      .drop_privileges = false};
  }
  std::optional<PasswdEntry> entry;
  struct stat info{};
  if (::lstat(cluster.c_str(), &info) == 0) {
    if (info.st_uid == 0)
      return fail(PrivatePostgresErrc::data_dir_unusable,
                  cluster.string() + " belongs to root, whom PostgreSQL refuses to run as",
                  "give it to an unprivileged user: chown -R postgres " + cluster.string());
    entry = user_by_id(info.st_uid);
    if (!entry) entry = PasswdEntry{info.st_uid, info.st_gid, std::to_string(info.st_uid)};
  }
  if (!entry) entry = user_by_name("postgres");
  if (!entry) entry = user_by_name("nobody");
  if (!entry || entry->uid == 0)
    return fail(PrivatePostgresErrc::start_failed,
                "PostgreSQL does not run as root, and there is neither a user postgres nor nobody to run it",
                "run Faultline as an ordinary user, or make the user: adduser --system postgres");
  return ServerUser{.uid = entry->uid,
                    .gid = entry->gid,
                    .groups = groups_of(*entry),
                    .name = entry->name,
                    .drop_privileges = true};
}

std::optional<fs::path> first_unreachable_directory(const ServerUser& user, const fs::path& path) {
  std::vector<std::string> prefixes;
  fs::path prefix;
  for (const auto& part : path) prefixes.push_back((prefix /= part).string());

  const pid_t child = ::fork();
  if (child < 0) return std::nullopt;
  if (child == 0) {
    if (!become(user)) ::_exit(0);
    for (std::size_t i = 0; i < prefixes.size() && i < 254; ++i)
      if (::chdir(prefixes[i].c_str()) != 0) ::_exit(static_cast<int>(i) + 1);
    ::_exit(0);
  }
  int status = 0;
  wait_for_child(child, &status);
  if (!WIFEXITED(status) || WEXITSTATUS(status) == 0) return std::nullopt;
  return prefixes[static_cast<std::size_t>(WEXITSTATUS(status) - 1)];
}

std::optional<Process> Process::open(pid_t pid) {
  FileDescriptor handle{::pidfd_open(pid, 0)};
  if (!handle.valid()) return std::nullopt;
  return Process{pid, std::move(handle)};
}

bool Process::exited() const {
  pollfd poll{.fd = handle_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&poll, 1, 0) > 0;
}

bool Process::wait_exited(Deadline deadline, const std::stop_token& stop) const {
  while (!exited())
    if (!pause_before_next_look(deadline, stop)) return exited();
  return true;
}

void Process::send(int signal) const { ::pidfd_send_signal(handle_.get(), signal, nullptr, 0); }

void Process::reap() const { ::waitpid(pid_, nullptr, WNOHANG); }

std::optional<Process> open_postgres_process(pid_t pid, const ServerUser& user, const fs::path& cluster) {
  // The handle comes first: what is read about the number afterwards is about this very process if it
  // is still alive at the end.
  auto process = Process::open(pid);
  if (!process) return std::nullopt;
  const fs::path about = fs::path("/proc") / std::to_string(pid);
  struct stat info{};
  if (::stat(about.c_str(), &info) != 0 || info.st_uid != user.uid) return std::nullopt;
  if (read_small_file(about / "comm") != "postgres\n") return std::nullopt;
  if (!same_directory(about / "cwd", cluster) || process->exited()) return std::nullopt;
  return process;
}

std::vector<Process> postgres_processes(const ServerUser& user, const fs::path& cluster) {
  std::vector<Process> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const auto pid = parse_pid(entry.path().filename().string());
    if (!pid) continue;
    if (auto process = open_postgres_process(*pid, user, cluster)) found.push_back(std::move(*process));
  }
  return found;
}

std::expected<Process, std::string> spawn_detached(const Command& command) {
  const auto spawned = spawn(command, true);
  if (!spawned) return std::unexpected(spawned.error());
  auto process = Process::open(spawned->server);
  if (!process) return std::unexpected(command.argv[0] + " ended at once");
  return std::move(*process);
}

ToolResult run_tool(const Command& command, Deadline deadline, const std::stop_token& stop) {
  const auto spawned = spawn(command, false);
  if (!spawned) return {.succeeded = false, .problem = spawned.error()};
  const auto process = Process::open(spawned->child);
  const bool ended = process && process->wait_exited(deadline, stop);
  if (!ended) ::kill(-spawned->child, SIGKILL);
  int status = 0;
  wait_for_child(spawned->child, &status);
  if (!ended) return {.succeeded = false, .problem = command.argv[0] + " did not finish in time"};
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {.succeeded = true, .problem = {}};
  return {.succeeded = false, .problem = command.argv[0] + " " + describe_wait_status(status)};
}

std::string capture_output(const std::vector<std::string>& argv) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const FileDescriptor reading{ends[0]};
  FileDescriptor writing{ends[1]};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writing.get(), 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  auto arguments = argv;
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0].c_str(), &actions, nullptr, pointers_to(arguments).data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return {};
  writing.reset();
  std::string output;
  std::array<char, 1024> buffer{};
  ssize_t count = 0;
  while ((count = ::read(reading.get(), buffer.data(), buffer.size())) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    output.append(buffer.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  wait_for_child(child, &status);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? output : std::string{};
}

}  // namespace faultline::private_pg
