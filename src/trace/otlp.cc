#include "trace/otlp.h"

#include <nlohmann/json.hpp>

#include "base/sha256.h"

namespace faultline::trace {
namespace {

using nlohmann::json;

std::string hex(std::span<const std::uint8_t> bytes) { return to_hex(std::as_bytes(bytes)); }

/// 64-bit integers are strings in the JSON of Protocol Buffers.
std::string nanoseconds(Time at) {
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count());
}

json to_json(const Attributes& attributes) {
  json list = json::array();
  for (const auto& [key, value] : attributes) {
    const auto* number = std::get_if<std::int64_t>(&value);
    json typed = number != nullptr ? json{{"intValue", std::to_string(*number)}}
                                   : json{{"stringValue", std::get<std::string>(value)}};
    list.push_back({{"key", key}, {"value", std::move(typed)}});
  }
  return list;
}

json to_json(const Span& span) {
  json object{{"traceId", hex(span.context.trace_id)},
              {"spanId", hex(span.context.span_id)},
              {"name", span.name},
              {"kind", static_cast<int>(span.kind)},
              {"startTimeUnixNano", nanoseconds(span.start)},
              // A clock may be set back meanwhile.
              {"endTimeUnixNano", nanoseconds(std::max(span.start, span.end))},
              {"attributes", to_json(span.attributes)}};
  if (span.parent) object["parentSpanId"] = hex(*span.parent);
  for (const SpanEvent& event : span.events) {
    object["events"].push_back({{"name", event.name},
                                {"timeUnixNano", nanoseconds(event.at)},
                                {"attributes", to_json(event.attributes)}});
  }
  if (span.error) object["status"] = {{"code", 2}, {"message", *span.error}};
  return object;
}

}  // namespace

std::string to_otlp_json(const Resource& resource, std::span<const Span> spans) {
  json list = json::array();
  for (const Span& span : spans) list.push_back(to_json(span));
  const json about{{"attributes", to_json({{"service.name", resource.service_name},
                                           {"service.instance.id", resource.instance}})}};
  const json scope{{"scope", {{"name", "faultline"}}}, {"spans", std::move(list)}};
  const json body{{"resourceSpans", {{{"resource", about}, {"scopeSpans", {scope}}}}}};
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace faultline::trace
