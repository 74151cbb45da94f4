#pragma once

#include <string>

#include "cli/support/output.h"
#include "faultline/error.h"

namespace faultline::cli {

/// An error of the store or of another part, as a command tells it: what the caller got wrong is wrong usage.
[[nodiscard]] Failure to_failure(const Error& error);
[[nodiscard]] Failure wrong_usage(std::string message, std::string hint);

}  // namespace faultline::cli
