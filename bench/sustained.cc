#include "bench/sustained.h"

#include <atomic>
#include <thread>

#include "bench/baseline.h"
#include "bench/store.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

constexpr std::size_t kBaselineBatch = 500;

/// A snapshot that is held keeps every dead row and index entry in place.
class HeldSnapshot {
 public:
  explicit HeldSnapshot(const BenchDatabase& database) : connection_(database.connect()) {
    must(connection_.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM faultline.jobs",
                                 in_time()));
  }

 private:
  pg::Connection connection_;
};

double sustain(BenchDatabase& database, const SustainedOptions& options) {
  auto client = must(Client::open({.database = database.dsn(), .connections_max = options.producers}));
  WorkerPool worker_pool{database.dsn(), options.worker_pool, [](Context&) {}};
  worker_pool.start();
  const std::vector<NewJob> batch(options.batch, bench_job());
  std::atomic<std::uint64_t> added{0};
  const auto begun = Clock::now();
  const auto end = begun + options.time;
  (void)measure(options.producers, [&](std::size_t) -> std::size_t {
    if (Clock::now() >= end) return 0;
    if (added - worker_pool.settled() < options.backlog_max) {
      added += batch.size();
      must(client.enqueue(batch));
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds{500});
    }
    return 1;
  });
  const std::uint64_t settled = worker_pool.settled();
  const std::chrono::duration<double> took = Clock::now() - begun;
  worker_pool.wait_until_done(client, added);
  worker_pool.stop();
  return static_cast<double>(settled) / took.count();
}

}  // namespace

Report sustained(BenchDatabase& database, const SustainedOptions& options, const Say& say) {
  Baseline baseline{database};
  if (options.retained > 0) {
    say("putting " + std::to_string(options.retained) + " finished jobs in the ledgers");
    retain(database.dsn(), options.retained);
    baseline.retain(options.retained);
  }
  std::optional<HeldSnapshot> snapshot;
  const std::size_t connections = options.worker_pool.workers * options.worker_pool.connections;
  if (options.snapshot) snapshot.emplace(database);
  say("adding and working jobs for " + std::to_string(options.time.count()) + " s, then as long by hand");
  const double ours = sustain(database, options);
  const double by_hand = baseline.sustained({.producers = options.producers,
                                             .producer_batch = options.batch,
                                             .consumers = connections,
                                             .consumer_batch = kBaselineBatch,
                                             .backlog_max = options.backlog_max,
                                             .time = options.time});
  Report report{"sustained: jobs are added and worked at the same time, with handlers that do nothing"};
  report.add_number("jobs_per_s", ours, 0, "added, worked and settled")
      .add_number("baseline_jobs_per_s", by_hand, 0,
                  "the same by hand, claiming batches of " + std::to_string(kBaselineBatch) + " on " +
                      std::to_string(connections) + " connections")
      .add_number("vs_baseline", ours / by_hand, 3)
      .add("seconds", options.time.count())
      .add("snapshot", options.snapshot, "whether one was held all the time")
      .add("retained", options.retained, "finished jobs in both ledgers beforehand")
      .add("producers", options.producers)
      .add("batch", options.batch)
      .add("backlog_max", options.backlog_max);
  add_to(report, options.worker_pool);
  return report;
}

}  // namespace faultline::bench
