#include "drills/race_worker.h"

#include <future>
#include <iostream>

#include "drills/history.h"
#include "drills/must.h"
#include "faultline/worker.h"

namespace faultline::drills {
namespace {

/// Says that the handler is over, however it ends.
class EndSignal {
 public:
  explicit EndSignal(std::promise<void>& over) : over_(over) {}
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;
  ~EndSignal() { over_.set_value(); }

 private:
  std::promise<void>& over_;
};

}  // namespace

void run_race_worker(const RaceWorkerOptions& options) {
  std::promise<void> over;
  Worker worker{{.database = options.database,
                 .name = options.name,
                 .queues = {{.queue = options.queue}},
                 .slots = 1,
                 .poll_max = std::chrono::milliseconds{50},
                 .watchdog = false,
                 .log = json_lines(std::cout, Severity::debug),
                 .log_from = Severity::debug}};
  worker.handle(std::string{kRaceKind}, [&](Context& context) {
    const EndSignal signal{over};
    const Lease& lease = context.job().lease;
    context.log("at work", {{"lease_id", lease.lease_id.to_string()}});
    if (std::string line; options.stalls) std::getline(std::cin, line);
    context.commit([&](Transaction& tx) {
      tx.exec(kInsertWrite, {lease.job, lease.worker});
      return "by " + lease.worker;
    });
  });
  must(worker.start());
  over.get_future().wait();
  worker.drain();
}

}  // namespace faultline::drills
