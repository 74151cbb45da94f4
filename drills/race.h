#pragma once

#include "drills/history.h"
#include "drills/race_environment.h"
#include "drills/schedule.h"

namespace faultline::drills {

/// Carries out one race in an environment, and tells what was done and answered. Throws DrillError.
[[nodiscard]] RaceHistory run_race(RaceEnvironment& environment, const Schedule& schedule);

}  // namespace faultline::drills
