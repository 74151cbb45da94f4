#pragma once

#include "worker/alarm.h"
#include "worker/board.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// Stops what has no time left, by this process's own clock and without asking anybody: an attempt whose
/// lease was not renewed in time, or whose job's maximum run time is over. Also gives back jobs that were
/// claimed ahead and wait for a slot longer than anybody expected.
class Guard {
 public:
  Guard(Board& board, const Log& log, const Meter& meter) : board_(board), log_(log), meter_(meter) {}

  void run();
  void stop() { alarm_.shut_off(); }
  void expect(const Batch& batch);

 private:
  /// When to look next.
  [[nodiscard]] Clock::time_point look(Clock::time_point now);
  void out_of_time(Attempt& attempt, Clock::time_point now);

  Board& board_;
  const Log& log_;
  const Meter& meter_;
  Alarm alarm_;
};

}  // namespace faultline::worker
