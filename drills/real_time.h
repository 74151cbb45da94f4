#pragma once

#include "drills/lease_race.h"

namespace faultline::drills {

/// The same story without a clock in our hand: worker processes, a lease of one second, and a stall of two
/// and a half, by SIGSTOP. One race after the other; `seed` has no meaning here. Throws DrillError.
[[nodiscard]] LeaseRaceReport run_real_time_races(const LeaseRaceOptions& options);

}  // namespace faultline::drills
