#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "faultline/time.h"

namespace faultline::testing {

/// Looks at a condition again and again until it holds; false if it does not in a long time.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);

struct ProcessOptions {
  std::vector<std::string> argv;  ///< argv[0] is a path, or found in PATH
  /// Added to this process's environment, or removed from it where the value is absent.
  std::vector<std::pair<std::string, std::optional<std::string>>> environment = {};
  std::string input = {};                ///< what it reads from standard input
  std::optional<std::string> user = {};  ///< run as this user; only root may
  std::optional<std::string> directory = {};
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 when a signal ended it
  int signal = 0;      ///< 0 when it exited
  std::string out;
  std::string err;
};

/// A child process in a process group of its own, with its output captured. Destroying it kills it and
/// its group.
class ChildProcess {
 public:
  explicit ChildProcess(const ProcessOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  [[nodiscard]] pid_t pid() const { return pid_; }
  void send(int signal) const;           ///< to the process
  void send_to_group(int signal) const;  ///< to its whole process group, as the terminal's Ctrl-C does
  /// Waits for its end; kills it and throws if it takes unreasonably long.
  ProcessResult wait();
  [[nodiscard]] bool running();
  /// What it has written so far.
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;

 private:
  bool poll_end();

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  std::optional<int> wait_status_;
};

/// Runs a program to its end.
[[nodiscard]] ProcessResult run_process(const ProcessOptions& options);

}  // namespace faultline::testing
