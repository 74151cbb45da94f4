#pragma once

#include <cstddef>

#include "bench/fleet.h"
#include "bench/server.h"
#include "bench/workload.h"

namespace faultline::bench {

struct DrainOptions {
  std::size_t jobs = 200'000;
  std::size_t rounds = 1;
  FleetOptions fleet;
};

/// One round: jobs per second.
[[nodiscard]] double drain_once(Server& server, const DrainOptions& options);
/// How fast workers empty a full queue: from their start to the commit of the last settlement.
[[nodiscard]] Report drain(Server& server, const DrainOptions& options, const Say& say);

}  // namespace faultline::bench
