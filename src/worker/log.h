#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/events.h"
#include "base/traceparent.h"
#include "faultline/event.h"
#include "faultline/job.h"

namespace faultline::worker {

/// Gives events to the sink, with the worker's name in them. What nobody wants is not made. Thread-safe.
class Log {
 public:
  using Fields = std::vector<std::pair<std::string, std::string>>;

  Log(EventSink sink, Severity from, std::string worker)
      : sink_(std::move(sink)), from_(from), worker_(std::move(worker)) {}

  [[nodiscard]] bool wants(Severity severity) const { return severity >= from_; }
  [[nodiscard]] const std::string& worker() const { return worker_; }

  void tell(Severity severity, std::string_view name, Fields fields = {}) const {
    if (wants(severity)) sink_(event(severity, name, std::move(fields)));
  }
  void tell(Severity severity, std::string_view name, const ClaimedJob& job, Fields fields = {}) const {
    if (!wants(severity)) return;
    Event told = event(severity, name, std::move(fields));
    told.job = job.lease.job;
    told.token = job.lease.token;
    told.queue = job.queue;
    told.kind = job.kind;
    told.attempt = job.attempt;
    if (job.traceparent) told.fields.emplace_back("trace_id", trace_id_of(job.traceparent));
    sink_(told);
  }

 private:
  [[nodiscard]] Event event(Severity severity, std::string_view name, Fields fields) const {
    return {.name = name,
            .severity = severity,
            .at = std::chrono::system_clock::now(),
            .worker = worker_,
            .fields = std::move(fields)};
  }

  EventSink sink_;
  Severity from_;
  std::string worker_;
};

}  // namespace faultline::worker
