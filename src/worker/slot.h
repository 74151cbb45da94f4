#pragma once

#include <map>
#include <string>

#include "faultline/handler.h"
#include "link/link.h"
#include "store/validate.h"
#include "worker/board.h"
#include "worker/log.h"
#include "worker/reports.h"

namespace faultline::worker {

using Handlers = std::map<std::string, Handler, std::less<>>;

/// Runs handlers, one at a time, on a thread of its own.
class Slot {
 public:
  Slot(const Handlers& handlers, link::Link& link, Board& board, Reports& reports, const Log& log,
       store::Limits limits)
      : handlers_(handlers), link_(link), board_(board), reports_(reports), log_(log), limits_(limits) {}

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
  store::Limits limits_;
};

}  // namespace faultline::worker
