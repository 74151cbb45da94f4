#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "link/link.h"
#include "worker/board.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// The latest progress of each running attempt, written for all of them together a few times a second: a
/// handler may report as often as it likes.
class Reports {
 public:
  Reports(link::Link& link, Board& board, const Log& log, const Meter& meter)
      : link_(link), board_(board), log_(log), meter_(meter) {}

  void run();
  void stop();

  void put(Attempt& attempt, double fraction, std::string_view note);
  /// The attempt is about to end, and its report with it.
  void forget(Attempt& attempt);

 private:
  struct Report {
    double fraction = 0;
    std::string note;
  };
  void write(const std::map<Attempt*, Report>& reports);

  link::Link& link_;
  Board& board_;
  const Log& log_;
  const Meter& meter_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<Attempt*, Report> reports_;
  bool stopped_ = false;
};

}  // namespace faultline::worker
