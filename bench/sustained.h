#pragma once

#include <chrono>
#include <cstddef>

#include "bench/bench_database.h"
#include "bench/worker_pool.h"
#include "bench/workload.h"

namespace faultline::bench {

struct SustainedOptions {
  std::chrono::seconds time{10};
  bool snapshot = false;             ///< hold a REPEATABLE READ snapshot open throughout
  std::size_t retained = 0;          ///< finished jobs in the ledger beforehand
  std::size_t producers = 1;         ///< threads that add jobs
  std::size_t batch = 1'000;         ///< jobs that a producer adds at once
  std::size_t backlog_max = 20'000;  ///< producers wait while this many jobs are not settled
  WorkerPoolOptions worker_pool;
};

/// How many jobs a second go all the way while others are added.
[[nodiscard]] Report sustained(BenchDatabase& database, const SustainedOptions& options, const Say& say);

}  // namespace faultline::bench
