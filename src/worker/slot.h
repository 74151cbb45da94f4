#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "faultline/handler.h"
#include "link/link.h"
#include "store/validate.h"
#include "trace/exporter.h"
#include "worker/board.h"
#include "worker/log.h"
#include "worker/meter.h"
#include "worker/reports.h"

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
class Slot {
 public:
  Slot(const Handlers& handlers, link::Link& link, Board& board, Reports& reports, const Log& log,
       const Meter& meter, trace::Exporter* exporter, store::Limits limits)
      : handlers_(handlers),
        link_(link),
        board_(board),
        reports_(reports),
        log_(log),
        meter_(meter),
        find_series_(meter.metrics()),
        exporter_(exporter),
        limits_(limits) {}

  void run();

 private:
  [[nodiscard]] Board::Finished run(Attempt& attempt);
  /// What the handler made of it; nothing if there is nothing that could be written.
  [[nodiscard]] std::optional<Outcome> call(Context& context, Attempt& attempt);
  [[nodiscard]] std::optional<Outcome> after_stop(const Attempt& attempt) const;

  const Handlers& handlers_;
  link::Link& link_;
  Board& board_;
  Reports& reports_;
  const Log& log_;
  const Meter& meter_;
  metrics::Finder find_series_;
  std::vector<metrics::Executed> executed_;  ///< of the jobs that were taken together
  trace::Exporter* exporter_;                ///< null: spans go nowhere
  store::Limits limits_;
};

}  // namespace faultline::worker
