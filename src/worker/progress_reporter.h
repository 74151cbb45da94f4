#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "worker/coordinator.h"
#include "worker/link.h"
#include "worker/log.h"
#include "worker/meter.h"

namespace faultline::worker {

/// The latest progress of each running attempt, written for all of them together a few times a second: a
/// handler may report as often as it likes.
class ProgressReporter {
 public:
  ProgressReporter(Link& link, Coordinator& coordinator, const Log& log, const Meter& meter)
      : link_(link), coordinator_(coordinator), log_(log), meter_(meter) {}

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

  Link& link_;
  Coordinator& coordinator_;
  const Log& log_;
  const Meter& meter_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<Attempt*, Report> reports_;
  bool stopped_ = false;
};

}  // namespace faultline::worker
