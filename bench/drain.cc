#include "bench/drain.h"

#include "bench/floor.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

constexpr std::size_t kFloorBatch = 500;

}  // namespace

double drain_once(Server& server, const DrainOptions& options) {
  server.clear();
  auto client = must(Client::open({.database = server.dsn(), .call_timeout = std::chrono::minutes{10}}));
  must(client.enqueue_bulk(bench_jobs(options.jobs)));
  Fleet fleet{server.dsn(), options.fleet, [](Context&) {}};
  const auto begun = Clock::now();
  fleet.start();
  fleet.wait_for_settled(options.jobs);
  const std::chrono::duration<double> took = Clock::now() - begun;
  fleet.stop();
  for (const QueueCounts& queue : must(client.counts("default"))) {
    if (queue.available > 0 || queue.running > 0) throw std::runtime_error("a job was left behind");
  }
  return static_cast<double>(options.jobs) / took.count();
}

Report drain(Server& server, const DrainOptions& options, const Say& say) {
  Floor floor{server};
  const std::size_t connections = options.fleet.workers * options.fleet.connections;
  const Compared rates = in_turns(
      options.rounds,
      [&] {
        say("draining " + std::to_string(options.jobs) + " jobs, then as many by hand");
        return drain_once(server, options);
      },
      [&] {
        floor.fill(options.jobs);
        return floor.drain(connections, kFloorBatch);
      });
  Report report{"drain: " + std::to_string(options.jobs) +
                " jobs that were waiting, with handlers that do nothing"};
  report.add_number("jobs_per_s", rates.ours, 0, "from the workers' start to the last commit")
      .add_number("floor_jobs_per_s", rates.other, 0,
                  "claim and settle by hand, batches of " + std::to_string(kFloorBatch) + ", " +
                      std::to_string(connections) + " connections")
      .add_number("vs_floor", rates.ratio, 3)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  add_to(report, options.fleet);
  return report;
}

}  // namespace faultline::bench
