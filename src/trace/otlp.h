#pragma once

#include <span>
#include <string>
#include <string_view>

#include "trace/span.h"

namespace faultline::trace {

/// Who says so.
struct Resource {
  std::string service_name;
  std::string instance;  ///< a process of that service
};

/// The body of an OTLP/HTTP request (ExportTraceServiceRequest) as JSON.
[[nodiscard]] std::string to_otlp_json(const Resource& resource, std::span<const Span> spans);

}  // namespace faultline::trace
