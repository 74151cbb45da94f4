#include "drills/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "drills/must.h"

namespace faultline::drills {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw DrillError(std::string{"no pipe: "} + std::strerror(errno));
  return ends;
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (std::ranges::find(added, name, &std::pair<std::string, std::string>::first) == added.end())
      all.push_back(text);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (auto& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Child::Child(std::vector<std::string> arguments,
             const std::vector<std::pair<std::string, std::string>>& environment) {
  arguments.insert(arguments.begin(), "faultline");
  auto variables = environment_with(environment);
  const auto argv = pointers_to(arguments);
  const auto envp = pointers_to(variables);
  const auto to_child = make_pipe();
  const auto from_child = make_pipe();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    // If the parent has died before, nobody is told any more.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() == parent && ::dup2(to_child[0], STDIN_FILENO) >= 0 &&
        ::dup2(from_child[1], STDOUT_FILENO) >= 0)
      ::execve(kThisProgram, argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  in_ = to_child[1];
  out_ = from_child[0];
  if (pid_ < 0) throw DrillError(std::string{"no process could be started: "} + std::strerror(errno));
}

Child::~Child() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(in_);
  ::close(out_);
}

void Child::send(int signal) const {
  if (pid_ > 0) ::kill(pid_, signal);
}

void Child::write_line(const std::string& line) const {
  const std::string text = line + "\n";
  if (::write(in_, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    throw DrillError(std::string{"a worker process could not be told to go on: "} + std::strerror(errno));
}

std::optional<std::string> Child::read_line(Deadline deadline) {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Deadline::clock::now()).count();
    if (left <= 0) throw DrillError("a worker process did not get on in time");
    pollfd polled{.fd = out_, .events = POLLIN, .revents = 0};
    if (::poll(&polled, 1, static_cast<int>(left)) <= 0) continue;
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(out_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    buffer_.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

int Child::wait() {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace faultline::drills
