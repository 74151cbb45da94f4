#include "cli/support/log_sink.h"

#include <iostream>

namespace faultline::cli {

Severity severity_of(const std::string& level) {
  for (const Severity severity : {Severity::debug, Severity::info, Severity::warning}) {
    if (level == faultline::to_string(severity)) return severity;
  }
  return Severity::error;
}

EventSink log_sink(const LogOptions& options) {
  const Severity from = severity_of(options.level);
  return options.format == "json" ? json_lines(std::cerr, from) : text_lines(std::cerr, from);
}

}  // namespace faultline::cli
