#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "bench/bench_database.h"
#include "bench/workload.h"

namespace faultline::bench {

/// How large the store's benchmark is; 1 is what its figures are quoted at, and a test needs less.
struct StoreBenchOptions {
  std::size_t rounds = 5;  ///< how often each comparison is measured; the median counts
  double scale = 1.0;      ///< of the numbers of jobs
};

/// The store without the worker runtime beside a hand-written baseline.
[[nodiscard]] nlohmann::json compare_store(BenchDatabase& database, const StoreBenchOptions& options,
                                           const Say& say);

/// Puts finished jobs in the ledger, by SQL.
void retain(const std::string& dsn, std::size_t jobs);

}  // namespace faultline::bench
