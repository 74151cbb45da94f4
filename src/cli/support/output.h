#pragma once

#include <expected>
#include <iosfwd>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/dsn.h"

namespace faultline::cli {

/// The exit codes of every subcommand.
enum class ExitCode : int { ok = 0, failure = 1, wrong_usage = 2 };

struct Failure {
  std::string code;     ///< for machines: stable, snake_case
  std::string message;  ///< what was wrong
  std::string hint;     ///< what to do
  ExitCode exit_code = ExitCode::failure;
};

template <class T>
using Expected = std::expected<T, Failure>;

/// What a command has to say: text for people, or one JSON object for machines.
struct CommandResult {
  std::string text;
  nlohmann::json json{};
  /// The JSON object as it is to be written, instead of `json`: where payloads must stay byte for byte.
  std::string json_text{};
  ExitCode exit_code = ExitCode::ok;  ///< `failure` where the answer itself is bad news
};

/// Writes answers to standard output and failures to standard error, in the form that was asked for.
class Output {
 public:
  Output(std::ostream& out, std::ostream& err, bool json) : out_(&out), err_(&err), json_(json) {}

  void print(const CommandResult& answer) const;
  void print(const Failure& failure) const;

 private:
  std::ostream* out_;
  std::ostream* err_;
  bool json_;
};

}  // namespace faultline::cli
