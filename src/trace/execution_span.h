#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "faultline/job.h"
#include "trace/exporter.h"

namespace faultline::trace {

/// The span of one execution: from its begin until it is known what became of it. One that is destroyed
/// without an end was abandoned, and is exported as such. Thread-safe.
class ExecutionSpan {
 public:
  /// Nothing if this one is not exported: its trace is not sampled, or it has none and is not chosen.
  [[nodiscard]] static std::unique_ptr<ExecutionSpan> begin(Exporter& exporter, const ClaimedJob& job);
  ExecutionSpan(Exporter& exporter, Span span);
  ~ExecutionSpan() { end("abandoned", "nothing is known of its end"); }
  ExecutionSpan(const ExecutionSpan&) = delete;
  ExecutionSpan& operator=(const ExecutionSpan&) = delete;

  /// What goes downstream.
  [[nodiscard]] const std::string& traceparent() const { return traceparent_; }

  void refused(std::string_view verb, const Stale& stale);
  /// `error`: why it failed; empty: it did not, unless something was refused. The first end counts.
  void end(std::string_view outcome, std::string_view error = {});
  void end(const Outcome& outcome);

 private:
  Exporter& exporter_;
  const std::string traceparent_;
  std::mutex mutex_;  // guards all below
  Span span_;
  bool ended_ = false;
};

}  // namespace faultline::trace
