#pragma once

#include <cstddef>

#include "bench/drain.h"

namespace faultline::bench {

struct GrpcOptions {
  std::size_t jobs = 100'000;
  std::size_t rounds = 1;
  std::size_t latency_jobs = 200;
  WorkerPoolOptions worker_pool;
};

/// How fast remote workers empty a full queue through a server, and how soon a job begins, beside workers on
/// the database.
[[nodiscard]] Report grpc(BenchDatabase& database, const GrpcOptions& options, const Say& say);

}  // namespace faultline::bench
