#pragma once

#include "base/traceparent.h"

namespace faultline::trace {

// Unlike all others, and of no use to guess: from a generator of this thread's own, seeded by the system.

[[nodiscard]] TraceId new_trace_id();
[[nodiscard]] SpanId new_span_id();
/// True for about this part of all calls; for none with 0, for all with 1.
[[nodiscard]] bool chance(double ratio);

}  // namespace faultline::trace
