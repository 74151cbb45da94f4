#pragma once

#include <string>

namespace faultline::drills {

struct RaceWorkerOptions {
  std::string database;
  std::string name;
  std::string queue;
  bool stalls = false;  ///< waits for a line on standard input before it commits
};

/// The life of one worker process of a race in real time: works one job and leaves. Its events are lines of
/// JSON on standard output. Throws DrillError.
void run_race_worker(const RaceWorkerOptions& options);

}  // namespace faultline::drills
