#include "trace/execution_span.h"

#include <algorithm>

#include "trace/ids.h"

namespace faultline::trace {
namespace {

constexpr std::size_t kErrorBytesMax = 1'024;

/// How long it was due before it was claimed, by the database's clock.
std::int64_t queue_wait_ms(const ClaimedJob& job) {
  const DatabaseTime claimed_at =
      job.lease_expires_at - std::min(job.lease_ttl, job.run_max.value_or(job.lease_ttl));
  return std::max<std::int64_t>(
      0, std::chrono::duration_cast<std::chrono::milliseconds>(claimed_at - job.run_at).count());
}

Span span_of(const ClaimedJob& job, TraceContext context, std::optional<SpanId> parent) {
  return {.context = context,
          .parent = parent,
          .name = "execute " + job.kind,
          .kind = Span::Kind::consumer,
          .start = std::chrono::system_clock::now(),
          .attributes = {{"faultline.job.id", job.lease.job.to_string()},
                         {"faultline.token", job.lease.token.value},
                         {"faultline.attempt", std::int64_t{job.attempt}},
                         {"faultline.queue", job.queue},
                         {"faultline.kind", job.kind},
                         {"faultline.worker", job.lease.worker},
                         {"faultline.queue_wait_ms", queue_wait_ms(job)}}};
}

}  // namespace

std::unique_ptr<ExecutionSpan> ExecutionSpan::begin(Exporter& exporter, const ClaimedJob& job) {
  const auto parent = job.traceparent ? TraceContext::parse(*job.traceparent) : std::nullopt;
  if (parent ? !parent->sampled() : !chance(exporter.sample_ratio())) return nullptr;
  const TraceContext context{.trace_id = parent ? parent->trace_id : new_trace_id(),
                             .span_id = new_span_id(),
                             .flags = TraceContext::kSampled};
  return std::make_unique<ExecutionSpan>(
      exporter, span_of(job, context, parent ? std::optional{parent->span_id} : std::nullopt));
}

ExecutionSpan::ExecutionSpan(Exporter& exporter, Span span)
    : exporter_(exporter), traceparent_(span.context.to_string()), span_(std::move(span)) {}

void ExecutionSpan::refused(std::string_view verb, const Stale& stale) {
  SpanEvent event{.name = "stale_write_blocked",
                  .at = std::chrono::system_clock::now(),
                  .attributes = {{"faultline.verb", std::string{verb}},
                                 {"faultline.reason", std::string{to_string(stale.reason)}}}};
  if (stale.current_token)
    event.attributes.emplace_back("faultline.current_token", stale.current_token->value);
  if (stale.current_worker) event.attributes.emplace_back("faultline.current_worker", *stale.current_worker);
  const std::lock_guard lock{mutex_};
  if (ended_) return;
  span_.events.push_back(std::move(event));
  if (!span_.error) span_.error = "refused as stale: " + std::string{to_string(stale.reason)};
}

void ExecutionSpan::end(std::string_view outcome, std::string_view error) {
  const std::lock_guard lock{mutex_};
  if (std::exchange(ended_, true)) return;
  span_.end = std::chrono::system_clock::now();
  span_.attributes.emplace_back("faultline.outcome", std::string{outcome});
  if (!span_.error && !error.empty()) span_.error = error.substr(0, kErrorBytesMax);
  exporter_.add(std::move(span_));
}

void ExecutionSpan::end(const Outcome& outcome) {
  const bool failed = outcome.kind == Outcome::Kind::failed || outcome.kind == Outcome::Kind::buried;
  end(to_string(outcome.kind), failed ? outcome.error.value_or("it failed") : std::string{});
}

}  // namespace faultline::trace
