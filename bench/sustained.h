#pragma once

#include <chrono>
#include <cstddef>

#include "bench/fleet.h"
#include "bench/server.h"
#include "bench/workload.h"

namespace faultline::bench {

struct SustainedOptions {
  std::chrono::seconds time{10};
  bool snapshot = false;             ///< hold a REPEATABLE READ snapshot open throughout
  std::size_t retained = 0;          ///< finished jobs in the ledger beforehand
  std::size_t producers = 1;         ///< threads that add jobs
  std::size_t batch = 1'000;         ///< jobs that a producer adds at once
  std::size_t backlog_max = 20'000;  ///< producers wait while so many jobs are not settled
  FleetOptions fleet;
};

/// How many jobs a second go all the way while others are added.
[[nodiscard]] Report sustained(Server& server, const SustainedOptions& options, const Say& say);

}  // namespace faultline::bench
