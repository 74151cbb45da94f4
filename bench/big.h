#pragma once

#include <cstddef>

#include "bench/bench_database.h"
#include "bench/report.h"
#include "bench/workload.h"

namespace faultline::bench {

struct BigOptions {
  std::size_t live = 500'000;
  std::size_t finished = 300'000;
  std::size_t queues = 2'000;
  std::size_t rounds = 5;
};

/// What becomes slow first when tables are large, on tables that are filled for it: how long each takes, and
/// how many buffers it reads, which no busy machine changes.
[[nodiscard]] Report big(BenchDatabase& database, const BigOptions& options, const Say& say);

}  // namespace faultline::bench
