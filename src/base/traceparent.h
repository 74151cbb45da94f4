#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline {

using TraceId = std::array<std::uint8_t, 16>;
using SpanId = std::array<std::uint8_t, 8>;

/// A place in a trace, as W3C Trace Context writes it: `00-TRACE_ID-PARENT_ID-FLAGS`.
struct TraceContext {
  static constexpr std::uint8_t kSampled = 1;

  TraceId trace_id{};  ///< not all 0
  SpanId span_id{};    ///< not all 0
  std::uint8_t flags = 0;

  /// Version 00 to the letter.
  [[nodiscard]] static std::optional<TraceContext> parse(std::string_view text);
  /// As it stands in a header: what a later version begins with counts too.
  [[nodiscard]] static std::optional<TraceContext> parse_header(std::string_view text);
  /// Version 00.
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] bool sampled() const { return (flags & kSampled) != 0; }

  friend bool operator==(const TraceContext&, const TraceContext&) = default;
};

/// The trace id of a `traceparent` that has been checked; empty if there is none.
[[nodiscard]] inline std::string_view trace_id_of(const std::optional<std::string>& traceparent) {
  return traceparent && traceparent->size() >= 35 ? std::string_view{*traceparent}.substr(3, 32)
                                                  : std::string_view{};
}

}  // namespace faultline
