#include "support/process.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace faultline::testing {
namespace {

constexpr std::chrono::seconds kPatience{120};

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

int memory_file(const char* name) {
  const int file = ::memfd_create(name, MFD_CLOEXEC);
  if (file < 0) throw_errno("memfd_create");
  return file;
}

std::string read_all(int file) {
  std::string content;
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t count = ::pread(file, buffer.data(), buffer.size(), static_cast<off_t>(content.size()));
    if (count <= 0) return content;
    content.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

std::vector<std::string> environment_with(const ProcessOptions& options) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    if (std::ranges::none_of(options.environment, [&](const auto& change) { return change.first == name; }))
      result.push_back(text);
  }
  for (const auto& [name, value] : options.environment)
    if (value) result.push_back(name + "=" + *value);
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

bool eventually(const std::function<bool()>& condition) {
  const auto begun = std::chrono::steady_clock::now();
  while (!condition()) {
    const auto waited = std::chrono::steady_clock::now() - begun;
    if (waited > kPatience) return false;
    // A tenth of what was waited already: to look costs more than it seems, and others want the processor.
    std::this_thread::sleep_for(std::clamp<std::chrono::steady_clock::duration>(
        waited / 10, std::chrono::milliseconds{2}, std::chrono::milliseconds{100}));
  }
  return true;
}

ChildProcess::ChildProcess(const ProcessOptions& options) {
  auto argv = options.argv;
  auto environment = environment_with(options);
  const auto argv_pointers = pointers_to(argv);
  const auto environment_pointers = pointers_to(environment);
  const passwd* user = options.user ? ::getpwnam(options.user->c_str()) : nullptr;
  if (options.user && user == nullptr) throw std::runtime_error("no such user: " + *options.user);
  const int in = memory_file("stdin");
  if (::pwrite(in, options.input.data(), options.input.size(), 0) < 0) throw_errno("pwrite");
  out_ = memory_file("stdout");
  err_ = memory_file("stderr");

  pid_ = ::fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) {
    ::setpgid(0, 0);
    const bool ready = ::dup2(in, 0) == 0 && ::dup2(out_, 1) == 1 && ::dup2(err_, 2) == 2 &&
                       (!options.directory || ::chdir(options.directory->c_str()) == 0) &&
                       (user == nullptr || (::setgroups(0, nullptr) == 0 && ::setgid(user->pw_gid) == 0 &&
                                            ::setuid(user->pw_uid) == 0));
    if (ready) ::execvpe(argv_pointers[0], argv_pointers.data(), environment_pointers.data());
    ::_exit(127);
  }
  ::setpgid(pid_, pid_);  // whoever comes first: nobody may signal the group before it exists
  ::close(in);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      out_(std::exchange(other.out_, -1)),
      err_(std::exchange(other.err_, -1)),
      wait_status_(other.wait_status_) {}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !wait_status_) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (out_ >= 0) ::close(out_);
  if (err_ >= 0) ::close(err_);
}

void ChildProcess::send(int signal) const {
  if (!wait_status_) ::kill(pid_, signal);
}

void ChildProcess::send_to_group(int signal) const {
  if (!wait_status_) ::kill(-pid_, signal);
}

bool ChildProcess::poll_end() {
  int status = 0;
  if (!wait_status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) wait_status_ = status;
  return wait_status_.has_value();
}

bool ChildProcess::running() { return !poll_end(); }

ProcessResult ChildProcess::wait() {
  if (!eventually([&] { return poll_end(); })) {
    ::kill(-pid_, SIGKILL);
    throw std::runtime_error("a child process did not end in time; it wrote:\n" + out() + err());
  }
  ProcessResult result;
  if (WIFEXITED(*wait_status_)) result.exit_code = WEXITSTATUS(*wait_status_);
  if (WIFSIGNALED(*wait_status_)) result.signal = WTERMSIG(*wait_status_);
  result.out = out();
  result.err = err();
  return result;
}

std::string ChildProcess::out() const { return read_all(out_); }

std::string ChildProcess::err() const { return read_all(err_); }

ProcessResult run_process(const ProcessOptions& options) { return ChildProcess{options}.wait(); }

}  // namespace faultline::testing
