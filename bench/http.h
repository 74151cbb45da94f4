#pragma once

#include <cstddef>

#include "bench/bench_database.h"
#include "bench/report.h"
#include "bench/workload.h"

namespace faultline::bench {

struct HttpOptions {
  std::size_t connections = 8;
  std::size_t batch = 1;  ///< jobs in a request
  std::size_t jobs = 50'000;
  std::size_t rounds = 1;
};

/// How fast jobs are added over HTTP, each request waiting for its commit, beside a plain INSERT for each.
[[nodiscard]] Report http(BenchDatabase& database, const HttpOptions& options, const Say& say);

}  // namespace faultline::bench
