// Trace contexts: what is read is written as it was, and a header may say no less than that.

#include "base/traceparent.h"

#include "fuzz/target.h"

namespace faultline::fuzz {

void run(std::string_view input) {
  const auto exact = TraceContext::parse(input);
  const auto header = TraceContext::parse_header(input);
  if (exact) {
    require(exact->to_string() == input, "version 00 is read to the letter");
    require(header == exact, "a header of version 00 says the same");
  }
  if (!header) return;
  require(header->trace_id != TraceId{} && header->span_id != SpanId{}, "no id is all 0");
  require(TraceContext::parse(header->to_string()) == header, "what is handed on can be read");
}

}  // namespace faultline::fuzz
