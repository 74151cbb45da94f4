#include "bench/enqueue.h"

#include <atomic>

#include "bench/floor.h"
#include "faultline/client.h"

namespace faultline::bench {
namespace {

double enqueue_once(Server& server, const EnqueueOptions& options) {
  server.clear();
  auto client = must(Client::open({.database = server.dsn(), .connections_max = options.connections}));
  const std::vector<NewJob> batch(options.batch, bench_job());
  std::atomic<std::size_t> begun{0};
  return measure(options.connections, [&](std::size_t) -> std::size_t {
    if (begun.fetch_add(batch.size()) >= options.jobs) return 0;
    return must(client.enqueue(batch)).size();
  });
}

}  // namespace

Report enqueue(Server& server, const EnqueueOptions& options, const Say& say) {
  Floor floor{server};
  std::vector<double> ours;
  std::vector<double> floors;
  std::vector<double> ratios;
  for (std::size_t round = 0; round < options.rounds; ++round) {
    say("adding " + std::to_string(options.jobs) + " jobs, then as many by hand");
    ours.push_back(enqueue_once(server, options));
    floor.fill(0);
    floors.push_back(floor.enqueue(options.connections, options.batch, options.jobs));
    ratios.push_back(ours.back() / floors.back());
  }
  Report report{"enqueue: batches of " + std::to_string(options.batch) + " on " +
                std::to_string(options.connections) + " connections, each batch a commit"};
  report.add_number("jobs_per_s", median(ours), 0)
      .add_number("floor_jobs_per_s", median(floors), 0,
                  "COPY or a multi-row INSERT by hand, into two indexes")
      .add_number("vs_floor", median(ratios), 3)
      .add("batch", options.batch)
      .add("connections", options.connections)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  return report;
}

}  // namespace faultline::bench
