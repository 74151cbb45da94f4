#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/traceparent.h"

namespace faultline::trace {

using Time = std::chrono::system_clock::time_point;  ///< this machine's clock: collectors compare machines

using Attributes = std::vector<std::pair<std::string, std::variant<std::string, std::int64_t>>>;

struct SpanEvent {
  std::string name;
  Time at{};
  Attributes attributes{};
};

/// Something that took time, as OpenTelemetry has it.
struct Span {
  enum class Kind : int { producer = 4, consumer = 5 };  ///< as OTLP numbers them

  TraceContext context{};
  std::optional<SpanId> parent{};  ///< absent: it is the root of its trace
  std::string name{};
  Kind kind = Kind::consumer;
  Time start{};
  Time end{};
  Attributes attributes{};  ///< never a payload
  std::vector<SpanEvent> events{};
  std::optional<std::string> error{};  ///< present: it failed
};

}  // namespace faultline::trace
