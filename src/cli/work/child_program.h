#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/work/orphan_killer.h"

namespace faultline::cli {

/// A program to be run: with this input, and with no open file of this process but its three own.
struct ProgramCall {
  std::string path;               ///< of the executable file
  std::vector<std::string> argv;  ///< with the program's name in front
  /// In addition to this process's environment, less what this process has for itself: FAULTLINE_*,
  /// DATABASE_URL and the passwords of libpq.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> hand_on{};  ///< names of variables that the program gets all the same
  std::string_view input;
  std::size_t output_max = 0;  ///< bytes; a program that writes more is killed
};

/// How a program ended.
struct ProgramEnd {
  int exit_code = -1;  ///< -1: a signal ended it
  int signal = 0;
  bool told_to_stop = false;  ///< it was sent SIGTERM, or SIGKILL, before
  bool output_too_large = false;
  std::string output;
  std::string error_tail;  ///< the end of what it wrote to standard error
};

/// How much a running program is pressed to end.
enum class Pressure { none, terminate, kill };

/// What is asked while a program runs.
struct ProgramWatch {
  std::stop_token stop;                                   ///< wakes: `pressure` may have changed
  std::function<Pressure()> pressure;                     ///< asked often, once `stop` has fired
  std::function<void(std::string_view line)> error_line;  ///< a line of standard error, without its end
};

/// Runs a program to its end in a process group of its own, which is what SIGTERM and SIGKILL go to. Whatever
/// the program leaves running is killed when it ends, also what has begun a session of its own; when this
/// process dies, all of it is. Blocks. The text of an error says why the program could not be run.
[[nodiscard]] std::expected<ProgramEnd, std::string> run_program(const ProgramCall& call,
                                                                 const ProgramWatch& watch,
                                                                 const OrphanKiller& orphan_killer);

/// The executable file that a name means: a path if it has a slash in it, else what PATH finds. The text of
/// an error says what is wrong with it.
[[nodiscard]] std::expected<std::string, std::string> find_program(const std::string& name);

}  // namespace faultline::cli
