#pragma once

#include "drills/history.h"
#include "drills/lane.h"
#include "drills/schedule.h"

namespace faultline::drills {

/// Carries out one race in a lane, and tells what was done and answered. Throws DrillError.
[[nodiscard]] RaceHistory run_race(Lane& lane, const Schedule& schedule);

}  // namespace faultline::drills
