#pragma once

#include <span>
#include <vector>

#include "faultline/job.h"
#include "trace/exporter.h"

namespace faultline::trace {

/// The spans of jobs that are being added. From now on the jobs belong to them: each is given the
/// `traceparent` of its span, so that its executions are that span's children. A job that is not exported is
/// told so in its `traceparent`, and workers keep to that.
class EnqueueSpans {
 public:
  EnqueueSpans(Exporter& exporter, std::span<NewJob> jobs);

  /// Exports what was created. `submissions` are the answers, in the jobs' order.
  void added(std::span<const Submission> submissions);

 private:
  struct Item {
    std::size_t index = 0;
    Span span;
  };
  Exporter* exporter_;
  std::vector<Item> items_;  ///< those to be exported
};

}  // namespace faultline::trace
