#pragma once

#include <functional>
#include <string>

#include "cli/commands.h"
#include "cli/reference/command_tree.h"

namespace faultline::cli {

/// A program: what it is called, what it is about, and what adds its subcommands.
struct Program {
  std::string name;
  std::string about;
  std::function<void(CLI::App& app, Action& chosen)> add_commands;
};

/// The program that ships.
[[nodiscard]] Program faultline_program();
/// Its commands, for its documentation.
[[nodiscard]] CommandText describe_faultline();

/// Reads the command line, runs one subcommand, and says how it went. Returns what main() returns.
[[nodiscard]] int run_command_line(const Program& program, int argc, char** argv);

}  // namespace faultline::cli
