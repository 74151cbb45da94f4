#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace faultline::cli {

/// An option or an argument, as `--help` knows it.
struct OptionText {
  std::vector<std::string> names;  ///< "-h", "--help"; of an argument: its name alone
  std::string value;               ///< "FILE", "N"; empty: a flag
  std::string range;               ///< "1 to 100"; empty: anything
  std::vector<std::string> choices;
  std::string help;
  std::string default_value;
  bool required = false;
  bool repeated = false;
};

/// A command with all that people may know of it: what `--help` hides is not in it.
struct CommandText {
  std::vector<std::string> path;  ///< "faultline" "jobs" "list"
  std::string help;
  std::string footer;
  std::vector<OptionText> options;  ///< its own; those of the commands above it are good here too
  std::vector<OptionText> arguments;
  std::vector<CommandText> commands;
  bool needs_command = false;  ///< it does nothing without one of its commands

  [[nodiscard]] std::string full_name() const;  ///< "faultline jobs list"
};

/// The one source of man pages, completions and the reference: the tree that also parses and prints `--help`.
[[nodiscard]] CommandText describe(const CLI::App& app);

/// The words between the command's name and its end, as in `--name NAME [OPTIONS] QUEUE [ID...]`.
[[nodiscard]] std::vector<std::string> synopsis_of(const CommandText& command);

}  // namespace faultline::cli
