#include "bench/drain.h"

#include "bench/baseline.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

constexpr std::size_t kBaselineBatch = 500;

}  // namespace

double drain_once(BenchDatabase& database, const DrainOptions& options) {
  database.clear();
  auto client = must(Client::open({.database = database.dsn(), .call_timeout = std::chrono::minutes{10}}));
  must(client.enqueue_bulk(bench_jobs(options.jobs)));
  WorkerPool worker_pool{database.dsn(), options.worker_pool, [](Context&) {}};
  const auto begun = Clock::now();
  worker_pool.start();
  worker_pool.wait_until_done(client, options.jobs);
  const std::chrono::duration<double> took = Clock::now() - begun;
  worker_pool.stop();
  for (const QueueCounts& queue : must(client.counts("default"))) {
    if (queue.available > 0 || queue.running > 0) throw std::runtime_error("a job was left behind");
  }
  return static_cast<double>(options.jobs) / took.count();
}

Report drain(BenchDatabase& database, const DrainOptions& options, const Say& say) {
  Baseline baseline{database};
  const std::size_t connections = options.worker_pool.workers * options.worker_pool.connections;
  const Compared rates = in_turns(
      options.rounds,
      [&] {
        say("draining " + std::to_string(options.jobs) + " jobs, then as many by hand");
        return drain_once(database, options);
      },
      [&] {
        baseline.fill(options.jobs);
        return baseline.drain(connections, kBaselineBatch);
      });
  Report report{"drain: " + std::to_string(options.jobs) +
                " jobs that were waiting, with handlers that do nothing"};
  report.add_number("jobs_per_s", rates.ours, 0, "from the workers' start to the last commit")
      .add_number("baseline_jobs_per_s", rates.other, 0,
                  "claim and settle by hand, batches of " + std::to_string(kBaselineBatch) + ", " +
                      std::to_string(connections) + " connections")
      .add_number("vs_baseline", rates.ratio, 3)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  add_to(report, options.worker_pool);
  return report;
}

}  // namespace faultline::bench
