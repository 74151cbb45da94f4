#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "faultline/time.h"

namespace faultline::drills {

/// This program once more, as a process of its own, with pipes to its standard input and output. It does not
/// outlive its parent, nor this object. Throws DrillError.
class Child {
 public:
  Child(std::vector<std::string> arguments,
        const std::vector<std::pair<std::string, std::string>>& environment);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  void send(int signal) const;
  void write_line(const std::string& line) const;
  /// The next line that it writes; nothing at the end of its output. Throws at the deadline.
  [[nodiscard]] std::optional<std::string> read_line(Deadline deadline);
  /// Waits for its end, which must be near: its output has ended. The exit code, or 128 and the signal.
  int wait();

 private:
  pid_t pid_ = -1;
  int in_ = -1;
  int out_ = -1;
  std::string buffer_;
};

}  // namespace faultline::drills
