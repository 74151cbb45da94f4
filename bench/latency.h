#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "bench/bench_database.h"
#include "bench/worker_pool.h"
#include "bench/workload.h"

namespace faultline::bench {

struct LatencyOptions {
  std::size_t jobs = 500;
  std::chrono::milliseconds pause_max{30};  ///< between two jobs, at random
  WorkerPoolOptions worker_pool;
};

/// One job at a time: milliseconds from before its enqueue call to the handler's first line, of each.
[[nodiscard]] std::vector<double> latencies(BenchDatabase& database, const LatencyOptions& options);
/// How soon a job begins on an idle system: one job at a time, with a random pause before each.
[[nodiscard]] Report latency(BenchDatabase& database, const LatencyOptions& options, const Say& say);

}  // namespace faultline::bench
