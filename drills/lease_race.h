#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "drills/checker.h"

namespace faultline::drills {

/// A race that went wrong, and how to see it again.
struct BrokenRace {
  std::size_t number = 0;
  std::uint64_t seed = 0;  ///< of this race alone
  std::string schedule;
  std::vector<std::string> violations;
};

/// Who came first where two sessions acted at the same moment.
struct FinishLine {
  std::size_t late_first = 0;
  std::size_t late_second = 0;
};

/// What all races showed.
struct LeaseRaceReport {
  std::uint64_t seed = 0;
  std::size_t threads = 0;
  std::size_t runs = 0;
  std::size_t races = 0;  ///< runs in which a reclaim did occur
  std::size_t successes = 0;
  std::size_t ended_succeeded = 0;
  std::size_t duplicates = 0;
  std::size_t late_writes = 0;
  std::size_t stale_blocked = 0;
  std::size_t stale_accepted = 0;
  std::size_t shapes = 0;  ///< different ones: who comes back when, with what
  std::map<std::string, std::size_t> by_verb;
  std::map<std::string, std::size_t> by_timing;
  std::map<std::string, FinishLine> finish_lines;  ///< by timing
  double seconds = 0;
  std::size_t violations = 0;
  std::vector<BrokenRace> broken;  ///< the first of them

  [[nodiscard]] bool passed() const { return violations == 0 && races == runs; }
  void add(const RaceHistory& history, const RaceVerdict& verdict, std::size_t number);
};

struct DrillProgress {
  std::size_t done = 0;
  std::size_t runs = 0;
  std::size_t stale_accepted = 0;
  double seconds = 0;
};

struct LeaseRaceOptions {
  std::string database;  ///< a database of the server; the races are held in others, made for them
  std::size_t runs = 1;
  std::uint64_t seed = 0;
  /// Ends the drill: its databases are dropped on the thread that asks for it, before the request returns.
  std::stop_token stop{};
  /// Several times a second, from the calling thread.
  std::function<void(const DrillProgress&)> on_progress{};
  /// The events of one race as lines of JSON, race by race, from one thread at a time.
  std::function<void(const std::vector<std::string>&)> on_trace{};
};

/// Holds races in scratch databases with a clock of their own, several at once. Throws DrillError.
[[nodiscard]] LeaseRaceReport run_lease_races(const LeaseRaceOptions& options);

}  // namespace faultline::drills
