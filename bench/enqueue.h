#pragma once

#include <cstddef>

#include "bench/bench_database.h"
#include "bench/report.h"
#include "bench/workload.h"

namespace faultline::bench {

struct EnqueueOptions {
  std::size_t batch = 1'000;
  std::size_t connections = 2;
  std::size_t jobs = 300'000;
  std::size_t rounds = 1;
};

/// How fast a producer adds jobs: on several connections, each batch a commit.
[[nodiscard]] Report enqueue(BenchDatabase& database, const EnqueueOptions& options, const Say& say);

}  // namespace faultline::bench
