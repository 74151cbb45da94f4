#include "cli/support/failures.h"

namespace faultline::cli {

Failure to_failure(const Error& error) {
  const bool usage = error.code == ErrorCode::invalid_argument;
  return {.code = std::string{faultline::to_string(error.code)},
          .message = error.message,
          .hint = error.hint,
          .exit_code = usage ? ExitCode::wrong_usage : ExitCode::failure};
}

Failure wrong_usage(std::string message, std::string hint) {
  return {.code = "wrong_usage",
          .message = std::move(message),
          .hint = std::move(hint),
          .exit_code = ExitCode::wrong_usage};
}

}  // namespace faultline::cli
