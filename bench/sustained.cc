#include "bench/sustained.h"

#include <atomic>
#include <thread>

#include "bench/floor.h"
#include "bench/store.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

constexpr std::size_t kFloorBatch = 500;

/// A snapshot that is held keeps every dead row and index entry in place.
class HeldSnapshot {
 public:
  explicit HeldSnapshot(const Server& server) : connection_(server.connect()) {
    must(connection_.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM faultline.jobs",
                                 in_time()));
  }

 private:
  pg::Connection connection_;
};

double sustain(Server& server, const SustainedOptions& options) {
  auto client = must(Client::open({.database = server.dsn(), .connections_max = options.producers}));
  Fleet fleet{server.dsn(), options.fleet, [](Context&) {}};
  fleet.start();
  const std::vector<NewJob> batch(options.batch, bench_job());
  std::atomic<std::uint64_t> added{0};
  const auto begun = Clock::now();
  const auto end = begun + options.time;
  (void)measure(options.producers, [&](std::size_t) -> std::size_t {
    if (Clock::now() >= end) return 0;
    if (added - fleet.settled() < options.backlog_max) {
      added += batch.size();
      must(client.enqueue(batch));
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds{500});
    }
    return 1;
  });
  const std::uint64_t settled = fleet.settled();
  const std::chrono::duration<double> took = Clock::now() - begun;
  fleet.wait_for_settled(added);
  fleet.stop();
  return static_cast<double>(settled) / took.count();
}

}  // namespace

Report sustained(Server& server, const SustainedOptions& options, const Say& say) {
  Floor floor{server};
  if (options.retained > 0) {
    say("putting " + std::to_string(options.retained) + " finished jobs in the ledgers");
    retain(server.dsn(), options.retained);
    floor.retain(options.retained);
  }
  std::optional<HeldSnapshot> snapshot;
  const std::size_t connections = options.fleet.workers * options.fleet.connections;
  if (options.snapshot) snapshot.emplace(server);
  say("adding and working jobs for " + std::to_string(options.time.count()) + " s, then as long by hand");
  const double ours = sustain(server, options);
  const double by_hand = floor.sustained({.producers = options.producers,
                                          .producer_batch = options.batch,
                                          .consumers = connections,
                                          .consumer_batch = kFloorBatch,
                                          .backlog_max = options.backlog_max,
                                          .time = options.time});
  Report report{"sustained: jobs are added and worked at the same time, with handlers that do nothing"};
  report.add_number("jobs_per_s", ours, 0, "added, worked and settled")
      .add_number("floor_jobs_per_s", by_hand, 0,
                  "the same by hand, claiming batches of " + std::to_string(kFloorBatch) + " on " +
                      std::to_string(connections) + " connections")
      .add_number("vs_floor", ours / by_hand, 3)
      .add("seconds", options.time.count())
      .add("snapshot", options.snapshot, "whether one was held all the time")
      .add("retained", options.retained, "finished jobs in both ledgers beforehand")
      .add("producers", options.producers)
      .add("batch", options.batch)
      .add("backlog_max", options.backlog_max);
  add_to(report, options.fleet);
  return report;
}

}  // namespace faultline::bench
