#pragma once

#include <cstddef>

#include "bench/bench_database.h"
#include "bench/worker_pool.h"
#include "bench/workload.h"

namespace faultline::bench {

struct DrainOptions {
  std::size_t jobs = 200'000;
  std::size_t rounds = 1;
  WorkerPoolOptions worker_pool;
};

/// One round: jobs per second.
[[nodiscard]] double drain_once(BenchDatabase& database, const DrainOptions& options);
/// How fast workers empty a full queue: from their start to the commit of the last settlement.
[[nodiscard]] Report drain(BenchDatabase& database, const DrainOptions& options, const Say& say);

}  // namespace faultline::bench
