#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "drills/history.h"

namespace faultline::drills {

/// A broken promise.
struct Violation {
  enum class Kind {
    stale_accepted,  ///< a write under a lost lease changed something, or was said to have
    duplicate,       ///< a job succeeded more than once
    other,
  };
  Kind kind = Kind::other;
  std::string text;
};

/// What one race showed.
struct RaceVerdict {
  bool reclaimed = false;  ///< the ledger's success has a token of 2 or more
  std::size_t successes = 0;
  bool ended_succeeded = false;  ///< the job is in the ledger as succeeded, and nowhere else
  std::size_t late_writes = 0;
  std::size_t blocked = 0;   ///< late writes that were refused, with the right evidence
  std::size_t accepted = 0;  ///< late writes that were not refused
  std::vector<Violation> violations;
};

/// Compares what the database says with what was done and what the calls returned. Pure: it asks nobody.
[[nodiscard]] RaceVerdict check(const RaceHistory& history, const Findings& findings);

}  // namespace faultline::drills
