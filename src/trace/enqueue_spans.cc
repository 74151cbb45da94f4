#include "trace/enqueue_spans.h"

#include "trace/ids.h"

namespace faultline::trace {

EnqueueSpans::EnqueueSpans(Exporter& exporter, std::span<NewJob> jobs) : exporter_(&exporter) {
  const Time now = std::chrono::system_clock::now();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    NewJob& job = jobs[i];
    const auto parent = job.traceparent ? TraceContext::parse(*job.traceparent) : std::nullopt;
    if (parent && !parent->sampled()) continue;
    const bool chosen = parent || chance(exporter.sample_ratio());
    const TraceContext context{.trace_id = parent ? parent->trace_id : new_trace_id(),
                               .span_id = new_span_id(),
                               .flags = chosen ? TraceContext::kSampled : std::uint8_t{0}};
    job.traceparent = context.to_string();
    if (!chosen) continue;
    items_.push_back(
        {.index = i,
         .span = {.context = context,
                  .parent = parent ? std::optional{parent->span_id} : std::nullopt,
                  .name = "enqueue " + job.kind,
                  .kind = Span::Kind::producer,
                  .start = now,
                  .attributes = {{"faultline.queue", job.queue}, {"faultline.kind", job.kind}}}});
  }
}

void EnqueueSpans::added(std::span<const Submission> submissions) {
  const Time now = std::chrono::system_clock::now();
  for (Item& item : items_) {
    const Submission& submission = submissions[item.index];
    if (submission.status != Submission::Status::created) continue;
    item.span.end = now;
    item.span.attributes.emplace_back("faultline.job.id", submission.job.to_string());
    exporter_->add(std::move(item.span));
  }
}

}  // namespace faultline::trace
