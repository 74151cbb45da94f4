#include "bench/grpc.h"

#include "bench/bench_server.h"
#include "bench/latency.h"

namespace faultline::bench {

Report grpc(BenchDatabase& database, const GrpcOptions& options, const Say& say) {
  const BenchServer server{database.dsn()};
  DrainOptions direct{.jobs = options.jobs, .worker_pool = options.worker_pool};
  DrainOptions remote = direct;
  remote.worker_pool.server = server.url();
  const Compared rates = in_turns(
      options.rounds,
      [&] {
        say("working " + std::to_string(options.jobs) +
            " jobs through the server, then as many on the database");
        return drain_once(database, remote);
      },
      [&] { return drain_once(database, direct); });
  database.clear();
  say("one job at a time, through the server and on the database");
  const auto remote_ms =
      latencies(database, {.jobs = options.latency_jobs, .worker_pool = remote.worker_pool});
  const auto direct_ms =
      latencies(database, {.jobs = options.latency_jobs, .worker_pool = direct.worker_pool});
  Report report{"grpc: remote workers with handlers that do nothing, server and workers in one process"};
  report.add_number("jobs_per_s", rates.ours, 0, "through StreamJobs and ReportResult, to the last commit")
      .add_number("direct_jobs_per_s", rates.other, 0, "the same workers on the database")
      .add_number("vs_direct", rates.ratio, 3)
      .add_number("p50_ms", quantile(remote_ms, 0.50), 3,
                  "from before the enqueue call to the handler's first line")
      .add_number("p99_ms", quantile(remote_ms, 0.99), 3)
      .add_number("direct_p50_ms", quantile(direct_ms, 0.50), 3)
      .add_number("direct_p99_ms", quantile(direct_ms, 0.99), 3)
      .add("jobs", options.jobs)
      .add("rounds", options.rounds);
  add_to(report, options.worker_pool);
  return report;
}

}  // namespace faultline::bench
