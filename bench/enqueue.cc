#include "bench/enqueue.h"

#include <atomic>

#include "bench/baseline.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

double enqueue_once(BenchDatabase& database, const EnqueueOptions& options) {
  database.clear();
  auto client = must(Client::open({.database = database.dsn(), .connections_max = options.connections}));
  const std::vector<NewJob> batch(options.batch, bench_job());
  std::atomic<std::size_t> begun{0};
  return measure(options.connections, [&](std::size_t) -> std::size_t {
    if (begun.fetch_add(batch.size()) >= options.jobs) return 0;
    return must(client.enqueue(batch)).size();
  });
}

}  // namespace

Report enqueue(BenchDatabase& database, const EnqueueOptions& options, const Say& say) {
  Baseline baseline{database};
  const Compared rates = in_turns(
      options.rounds,
      [&] {
        say("adding " + std::to_string(options.jobs) + " jobs, then as many by hand");
        return enqueue_once(database, options);
      },
      [&] {
        baseline.fill(0);
        return baseline.enqueue(options.connections, options.batch, options.jobs);
      });
  Report report{"enqueue: batches of " + std::to_string(options.batch) + " on " +
                std::to_string(options.connections) + " connections, each batch a commit"};
  report.add_number("jobs_per_s", rates.ours, 0)
      .add_number("baseline_jobs_per_s", rates.other, 0,
                  "COPY or a multi-row INSERT by hand, into two indexes")
      .add_number("vs_baseline", rates.ratio, 3)
      .add("batch", options.batch)
      .add("connections", options.connections)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  return report;
}

}  // namespace faultline::bench
