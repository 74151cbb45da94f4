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

std::vector<std::string> whole_environment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text{*entry};
    const std::string_view name = text.substr(0, text.find('='));
    if (std::ranges::none_of(additions, [&](const auto& added) { return added.first == name; }))
      all.emplace_back(text);
  }
  for (const auto& [name, value] : additions) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// All that the new process needs between fork and exec, where nothing may be allocated.
struct Prepared {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int in = -1;
  int out = -1;
  int err = -1;
  int problem = -1;  ///< where an errno is written to if the program cannot be run
  pid_t parent = 0;
};

[[noreturn]] void become_program(const Prepared& prepared, const OrphanKiller& orphan_killer) noexcept {
  ::setpgid(0, 0);
  // Beside the orphan killer, which somebody may have killed. It is for the thread that forked, which waits
  // for us.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != prepared.parent) ::_exit(127);
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

/// A started program, from its exec until it is reaped.
class RunningProgram {
 public:
  RunningProgram(pid_t pid, Interrupt& told_to_stop, FileDescriptor out, FileDescriptor err,
                 const ProgramWatch& watch, const OrphanKiller& orphan_killer, std::size_t output_max)
      : pid_(pid),
        handle_(::pidfd_open(pid, 0)),
        told_to_stop_(told_to_stop),
        out_(std::move(out)),
        err_(std::move(err)),
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
    if (pid_ > 0) reap();
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
    ::kill(-pid_, wanted == Pressure::kill ? SIGKILL : SIGTERM);
    // Also a program that is stopped by a signal hears of it.
    ::kill(-pid_, SIGCONT);
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

  /// Ends the whole group while its leader, dead but not reaped, still holds its number.
  int reap() {
    siginfo_t info{};
    ::kill(-pid_, SIGKILL);
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    orphan_killer_.take_back(pid_);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

  pid_t pid_;
  FileDescriptor handle_;
  Interrupt& told_to_stop_;
  FileDescriptor out_;
  FileDescriptor err_;
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
  auto environment = whole_environment(call.environment);
  const auto argv_pointers = pointers_to(argv);
  const auto environment_pointers = pointers_to(environment);
  const FileDescriptor in = input_file(call.input);
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  Pipe problem = make_pipe();
  Interrupt told_to_stop;
  const Prepared prepared{.path = call.path.c_str(),
                          .argv = argv_pointers.data(),
                          .environment = environment_pointers.data(),
                          .in = in.get(),
                          .out = out.write_end.get(),
                          .err = err.write_end.get(),
                          .problem = problem.write_end.get(),
                          .parent = ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) become_program(prepared, orphan_killer);
  ::setpgid(pid, pid);  // whoever comes first: nobody may signal the group before it exists
  for (Pipe* pipe : {&out, &err, &problem}) pipe->write_end.reset();
  RunningProgram running{pid,   told_to_stop,  std::move(out.read_end), std::move(err.read_end),
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
