#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "faultline/handler.h"
#include "store/validate.h"
#include "trace/exporter.h"
#include "worker/coordinator.h"
#include "worker/link.h"
#include "worker/log.h"
#include "worker/meter.h"
#include "worker/progress_reporter.h"

namespace faultline::worker {

struct Handlers {
  std::map<std::string, Handler, std::less<>> by_kind;
  std::optional<Handler> any;  ///< for a kind that has none of its own

  [[nodiscard]] bool empty() const { return by_kind.empty() && !any; }
  [[nodiscard]] const Handler* find(std::string_view kind) const {
    if (const auto found = by_kind.find(kind); found != by_kind.end()) return &found->second;
    return any ? &*any : nullptr;
  }
};

/// Runs handlers, one at a time, on a thread of its own.
class Executor {
 public:
  Executor(const Handlers& handlers, Link& link, Coordinator& coordinator,
           ProgressReporter& progress_reporter, const Log& log, const Meter& meter, trace::Exporter* exporter,
           store::Limits limits)
      : handlers_(handlers),
        link_(link),
        coordinator_(coordinator),
        progress_reporter_(progress_reporter),
        log_(log),
        meter_(meter),
        find_series_(meter.metrics()),
        exporter_(exporter),
        limits_(limits) {}

  void run();

 private:
  /// `begin`: the answer to putting on record that it begins, if that was necessary.
  [[nodiscard]] Coordinator::Finished run(Attempt& attempt, const Beat* begin);
  /// Puts on record that those of the jobs begin for which it must be: `begins_`.
  void put_begins_on_record(const std::vector<Attempt*>& jobs);
  /// Whether the attempt may begin after this answer. If not, `instead` is its outcome, or there is nothing
  /// to be written.
  [[nodiscard]] bool may_begin(Attempt& attempt, const Beat& begin, std::optional<Outcome>& instead);
  /// What the handler made of it; nothing if there is nothing that could be written.
  [[nodiscard]] std::optional<Outcome> call(Context& context, Attempt& attempt);
  [[nodiscard]] std::optional<Outcome> after_stop(const Attempt& attempt) const;

  const Handlers& handlers_;
  Link& link_;
  Coordinator& coordinator_;
  ProgressReporter& progress_reporter_;
  const Log& log_;
  const Meter& meter_;
  metrics::Finder find_series_;
  std::map<const Attempt*, Beat> begins_;    ///< of the jobs that were taken together
  std::vector<metrics::Executed> executed_;  ///< of the jobs that were taken together
  trace::Exporter* exporter_;                ///< null: spans go nowhere
  store::Limits limits_;
};

}  // namespace faultline::worker
