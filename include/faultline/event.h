#pragma once

#include <chrono>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faultline/job.h"

namespace faultline {

enum class Severity {
  debug,    ///< the ordinary life of every job
  info,     ///< the ordinary life of a process
  warning,  ///< somebody should look during working hours
  error,    ///< somebody should look
};
[[nodiscard]] std::string_view to_string(Severity severity);

/// Something that happened, for people and machines that read logs. Names are stable;
/// docs/reference/events.md has all of them, with when each is told and what is in it.
struct Event {
  std::string_view name;
  Severity severity = Severity::info;
  std::chrono::system_clock::time_point at{};  ///< this machine's clock, for people; nothing is decided by it
  std::string worker{};
  std::optional<JobId> job{};
  std::optional<FenceToken> token{};
  std::string queue{};
  std::string kind{};
  int attempt = 0;  ///< 0: it is not about an attempt
  /// What else there is to say, in order: names in snake_case, values as text. Never a payload.
  std::vector<std::pair<std::string, std::string>> fields{};
};

/// Called from any thread, from several at once too, and must not throw. What it does takes the
/// runtime's time.
using EventSink = std::function<void(const Event&)>;

/// One JSON object, without a newline.
[[nodiscard]] std::string to_json_line(const Event& event);
/// One line for a person, without a newline.
[[nodiscard]] std::string to_text_line(const Event& event);

/// Sinks that write one line per event of at least this severity. The stream must outlive the sink.
[[nodiscard]] EventSink json_lines(std::ostream& out, Severity at_least = Severity::info);
[[nodiscard]] EventSink text_lines(std::ostream& out, Severity at_least = Severity::info);

}  // namespace faultline
