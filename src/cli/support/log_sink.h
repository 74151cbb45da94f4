#pragma once

#include <string>

#include "faultline/event.h"

namespace faultline::cli {

/// How a command that runs for long writes its log, in the words of its options.
struct LogOptions {
  std::string format = "text";  ///< text or json
  std::string level = "info";   ///< debug info warning error
};

[[nodiscard]] Severity severity_of(const std::string& level);
/// Lines on standard error.
[[nodiscard]] EventSink log_sink(const LogOptions& options);

}  // namespace faultline::cli
