#include "cli/work/child_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/interrupt.h"

// glibc 2.36 declares these without C linkage.
extern "C" {
#include <sys/pidfd.h>
}

namespace faultline::cli {
namespace {

namespace fs = std::filesystem;
using private_pg::FileDescriptor;

constexpr std::size_t kErrorTailMax = 4'096;
constexpr std::size_t kErrorLineMax = 4'096;
/// Between two looks at the pressure on a program that is told to stop.
constexpr int kLookEveryMs = 50;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

struct Pipe {
  FileDescriptor read_end;
  FileDescriptor write_end;
};

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_errno("pipe2");
  return {FileDescriptor{ends[0]}, FileDescriptor{ends[1]}};
}

/// A file in memory instead of a pipe: a program may leave its input unread, and nobody has to feed it.
FileDescriptor input_file(std::string_view input) {
  FileDescriptor file{::memfd_create("payload", MFD_CLOEXEC)};
  if (!file.valid()) throw_errno("memfd_create");
  for (off_t at = 0; !input.empty();) {
    const ssize_t count = ::pwrite(file.get(), input.data(), input.size(), at);
    if (count < 0 && errno != EINTR) throw_errno("pwrite");
    if (count <= 0) continue;
    at += count;
    input.remove_prefix(static_cast<std::size_t>(count));
  }
  return file;
}

/// What this process has for itself: its way into the database or the server, with the passwords and keys.
bool is_our_own(std::string_view name) {
  constexpr std::array kOurs{"DATABASE_URL",  "PGPASSWORD", "PGPASSFILE",
                             "PGSERVICEFILE", "PGSERVICE",  "PGSSLKEY",
                             "PGSSLPASSWORD", "PGSSLCERT",  "OTEL_EXPORTER_OTLP_HEADERS"};
  return name.starts_with("FAULTLINE_") || std::ranges::find(kOurs, name) != kOurs.end();
}

std::vector<std::string> environment_for(const ProgramCall& call) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::string_view name = text.substr(0, text.find('='));
    const bool handed_on = std::ranges::find(call.hand_on, name) != call.hand_on.end();
    const bool added =
        std::ranges::any_of(call.environment, [&](const auto& addition) { return addition.first == name; });
    if (!added && (handed_on || !is_our_own(name))) all.emplace_back(text);
  }
  for (const auto& [name, value] : call.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// All that the new processes need between fork and exec, where nothing may be allocated.
struct Prepared {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int in = -1;
  int out = -1;
  int err = -1;
  int problem = -1;  ///< where an errno is written to if the program cannot be run
  int status = -1;   ///< where the guard writes how the program ended
  pid_t worker = 0;
};

// What the worker tells a guard. The kernel tells it that the worker is gone.
constexpr int kTerminate = SIGTERM;
constexpr int kKill = SIGUSR1;
constexpr int kWorkerIsGone = SIGHUP;

[[noreturn]] void become_program(const Prepared& prepared, pid_t guard,
                                 const OrphanKiller& orphan_killer) noexcept {
  ::setpgid(0, 0);
  // Beside the guard and the orphan killer, which somebody may have killed.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guard) ::_exit(127);
  orphan_killer.announce(::getpid());
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(prepared.in, STDIN_FILENO);
  ::dup2(prepared.out, STDOUT_FILENO);
  ::dup2(prepared.err, STDERR_FILENO);
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(prepared.path, prepared.argv, prepared.environment);
  const int problem = errno;
  if (::write(prepared.problem, &problem, sizeof problem) < 0) ::_exit(126);
  ::_exit(127);
}

/// Kills the children of this process, which has one thread. How many could be; -1: they cannot be listed.
int kill_children() noexcept {
  std::array<char, 4'096> text{};
  const int file = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  int killed = 0;
  pid_t child = 0;
  for (ssize_t count = 0; (count = ::read(file, text.data(), text.size())) > 0;) {
    for (const char c : std::string_view{text.data(), static_cast<std::size_t>(count)}) {
      if (c >= '0' && c <= '9') {
        child = child * 10 + (c - '0');
      } else {
        if (child > 0 && ::kill(child, SIGKILL) == 0) ++killed;
        child = 0;
      }
    }
  }
  ::close(file);
  return killed;
}

/// Ends what the program has started and left behind, wherever it went, and tells how the program ended: what
/// has lost its parent is the guard's child.
[[noreturn]] void end_guard(pid_t program, int status_pipe, const OrphanKiller& orphan_killer) noexcept {
  // While the program, dead or not, still holds its number.
  ::kill(-program, SIGKILL);
  orphan_killer.take_back(program);
  int status = 0;
  while (::waitpid(program, &status, 0) < 0 && errno == EINTR) {
  }
  while (kill_children() > 0) ::waitpid(-1, nullptr, 0);
  if (::write(status_pipe, &status, sizeof status) < 0) ::_exit(1);
  ::_exit(0);
}

/// Whether the program has ended. Collects others that have.
bool has_ended(pid_t program) noexcept {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return false;
    if (info.si_pid == program) return true;
    ::waitpid(info.si_pid, nullptr, 0);
  }
}

/// A process between the worker and the program, as long as that runs: the one to which the kernel gives what
/// the program leaves behind, also in sessions of its own, and which ends it. It has nothing of the worker
/// open, and outlives it by a moment.
[[noreturn]] void guard_program(const Prepared& prepared, const OrphanKiller& orphan_killer) noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::setsid();
  ::prctl(PR_SET_NAME, "faultline-guard");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_PDEATHSIG, kWorkerIsGone);
  if (::getppid() != prepared.worker) ::_exit(127);
  const pid_t guard = ::getpid();
  const pid_t program = ::_Fork();
  if (program == 0) become_program(prepared, guard, orphan_killer);
  if (program < 0) {
    const int problem = errno;
    ::_exit(::write(prepared.problem, &problem, sizeof problem) < 0 ? 126 : 127);
  }
  ::setpgid(program, program);  // whoever comes first: nobody may signal the group before it exists
  const auto [first, last] = std::minmax(prepared.status, orphan_killer.fd());
  ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(first) - 1, 0);
  if (last - first > 1) ::close_range(static_cast<unsigned>(first) + 1, static_cast<unsigned>(last) - 1, 0);
  ::close_range(static_cast<unsigned>(last) + 1, ~0U, 0);
  if (::write(prepared.status, &program, sizeof program) < 0) ::kill(guard, kKill);
  for (;;) {
    switch (::sigwaitinfo(&all, nullptr)) {
      case kTerminate:
        ::kill(-program, SIGTERM);
        // Also a program that is stopped by a signal hears of it.
        ::kill(-program, SIGCONT);
        break;
      case kKill:
        ::kill(-program, SIGKILL);
        break;
      case kWorkerIsGone:
        end_guard(program, prepared.status, orphan_killer);
      case SIGCHLD:
        if (has_ended(program)) end_guard(program, prepared.status, orphan_killer);
        break;
      default:
        break;
    }
  }
}

/// The last bytes of a text, and its lines as they come.
class ErrorText {
 public:
  explicit ErrorText(const std::function<void(std::string_view)>& line) : line_(line) {}

  void add(std::string_view text) {
    tail_ += text;
    if (tail_.size() > kErrorTailMax) tail_.erase(0, tail_.size() - kErrorTailMax);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      rest_ += text.substr(0, end);
      tell();
      text.remove_prefix(end + 1);
    }
    rest_ += text;
    if (rest_.size() >= kErrorLineMax) tell();
  }
  [[nodiscard]] std::string finish() {
    tell();
    return std::move(tail_);
  }

 private:
  void tell() {
    if (!rest_.empty()) line_(std::string_view{rest_}.substr(0, kErrorLineMax));
    rest_.clear();
  }

  const std::function<void(std::string_view)>& line_;
  std::string tail_;
  std::string rest_;
};

/// A started program, from its exec until its guard is reaped.
class RunningProgram {
 public:
  RunningProgram(pid_t guard, Interrupt& told_to_stop, FileDescriptor out, FileDescriptor err,
                 FileDescriptor status, const ProgramWatch& watch, const OrphanKiller& orphan_killer,
                 std::size_t output_max)
      : guard_(guard),
        handle_(::pidfd_open(guard, 0)),
        told_to_stop_(told_to_stop),
        out_(std::move(out)),
        err_(std::move(err)),
        status_(std::move(status)),
        watch_(watch),
        orphan_killer_(orphan_killer),
        output_max_(output_max),
        error_text_(watch.error_line) {
    for (const FileDescriptor* file : {&out_, &err_}) ::fcntl(file->get(), F_SETFL, O_NONBLOCK);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  /// However it is left, nothing of the program is.
  ~RunningProgram() {
    if (guard_ > 0) reap();
  }

  ProgramEnd wait() {
    const std::stop_callback wake{watch_.stop, [this] { told_to_stop_.fire(); }};
    while (!look()) press();
    const int status = reap();
    // What it wrote is in the pipes. Whoever else still holds them is not waited for.
    take_output();
    take_errors();
    if (WIFEXITED(status)) end_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) end_.signal = WTERMSIG(status);
    end_.error_tail = error_text_.finish();
    return std::move(end_);
  }

 private:
  /// Waits until something happens. True: the program has ended.
  bool look() {
    const bool stopping = watch_.stop.stop_requested() || end_.output_too_large;
    std::array<pollfd, 4> polled{
        pollfd{.fd = handle_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = out_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = err_.get(), .events = POLLIN, .revents = 0},
        pollfd{.fd = stopping ? -1 : told_to_stop_.fd(), .events = POLLIN, .revents = 0}};
    if (::poll(polled.data(), polled.size(), stopping ? kLookEveryMs : -1) < 0) return false;
    if (polled[1].revents != 0) take_output();
    if (polled[2].revents != 0) take_errors();
    return polled[0].revents != 0;
  }

  void press() {
    Pressure wanted = watch_.stop.stop_requested() ? watch_.pressure() : Pressure::none;
    if (end_.output_too_large) wanted = Pressure::kill;
    if (wanted <= pressed_) return;
    pressed_ = wanted;
    if (!end_.output_too_large) end_.told_to_stop = true;
    ::kill(guard_, wanted == Pressure::kill ? kKill : kTerminate);
  }

  void take_output() {
    drain(out_, [this](std::string_view text) {
      if (end_.output.size() + text.size() > output_max_) end_.output_too_large = true;
      if (!end_.output_too_large) end_.output += text;
    });
  }
  void take_errors() {
    drain(err_, [this](std::string_view text) { error_text_.add(text); });
  }

  /// Reads what is there; a writer that never stops does not keep us from the rest.
  template <class F>
  static void drain(FileDescriptor& file, const F& take) {
    constexpr int kReadsMax = 64;
    std::array<char, 16'384> buffer{};
    for (int i = 0; i < kReadsMax && file.valid(); ++i) {
      const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) return file.reset();
      take(std::string_view{buffer.data(), static_cast<std::size_t>(count)});
    }
  }

  /// Waits for the guard, which has ended all that was left by then.
  int reap() {
    ::kill(guard_, kKill);
    while (::waitpid(guard_, nullptr, 0) < 0 && errno == EINTR) {
    }
    guard_ = -1;
    pid_t program = 0;
    int status = 0;
    if (::read(status_.get(), &program, sizeof program) != sizeof program) return SIGKILL;
    if (::read(status_.get(), &status, sizeof status) == sizeof status) return status;
    // Somebody has killed the guard, and with it the kernel has killed the program.
    ::kill(-program, SIGKILL);
    orphan_killer_.take_back(program);
    return SIGKILL;
  }

  pid_t guard_;
  FileDescriptor handle_;
  Interrupt& told_to_stop_;
  FileDescriptor out_;
  FileDescriptor err_;
  FileDescriptor status_;
  const ProgramWatch& watch_;
  const OrphanKiller& orphan_killer_;
  const std::size_t output_max_;
  ErrorText error_text_;
  Pressure pressed_ = Pressure::none;
  ProgramEnd end_;
};

}  // namespace

std::expected<ProgramEnd, std::string> run_program(const ProgramCall& call, const ProgramWatch& watch,
                                                   const OrphanKiller& orphan_killer) try {
  auto argv = call.argv;
  auto environment = environment_for(call);
  const auto argv_pointers = pointers_to(argv);
  const auto environment_pointers = pointers_to(environment);
  const FileDescriptor in = input_file(call.input);
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe problem = make_pipe();
  Pipe status = make_pipe();
  Interrupt told_to_stop;
  const Prepared prepared{.path = call.path.c_str(),
                          .argv = argv_pointers.data(),
                          .environment = environment_pointers.data(),
                          .in = in.get(),
                          .out = out.write_end.get(),
                          .err = err.write_end.get(),
                          .problem = problem.write_end.get(),
                          .status = status.write_end.get(),
                          .worker = ::getpid()};
  const pid_t guard = ::fork();
  if (guard < 0) throw_errno("fork");
  if (guard == 0) guard_program(prepared, orphan_killer);
  for (Pipe* pipe : {&out, &err, &problem, &status}) pipe->write_end.reset();
  RunningProgram running{
      guard, told_to_stop,  std::move(out.read_end), std::move(err.read_end), std::move(status.read_end),
      watch, orphan_killer, call.output_max};
  int error = 0;
  while (::read(problem.read_end.get(), &error, sizeof error) < 0 && errno == EINTR) {
  }
  if (error != 0) return std::unexpected(private_pg::errno_text(error));
  return running.wait();
} catch (const std::system_error& error) {
  return std::unexpected(error.what());
}

std::expected<std::string, std::string> find_program(const std::string& name) {
  const auto runnable = [](const fs::path& path) {
    std::error_code ignored;
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.contains('/')) {
    const fs::path path = fs::absolute(name);
    if (runnable(path)) return path.string();
    std::error_code ignored;
    return std::unexpected(fs::exists(path, ignored) ? "it is not an executable file"
                                                     : "there is no such file");
  }
  const char* path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "";
  while (!rest.empty() && !name.empty()) {
    const std::string_view directory = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), directory.size() + 1));
    const fs::path candidate = fs::absolute(fs::path{directory.empty() ? "." : directory} / name);
    if (runnable(candidate)) return candidate.string();
  }
  return std::unexpected("it is not in PATH");
}

}  // namespace faultline::cli
