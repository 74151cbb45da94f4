#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/job.h"

namespace faultline::drills {

/// What a late worker comes back with.
enum class Verb {
  complete,
  fail,
  snooze,
  release,
  bury,
  cancel,
  heartbeat,
  extend,
  progress,
  check,
  begin_effect,
  record_effect,
  forget_effect,
  transact,  ///< a fenced transaction, with a write of its own
};
inline constexpr std::size_t kVerbs = 14;
[[nodiscard]] std::string_view to_string(Verb verb);
/// How the evidence calls it.
[[nodiscard]] std::string_view name_in_evidence(Verb verb);

/// When, within the tenure of whoever has, or had, the lease. In the order of time.
enum class Timing {
  against_claim,   ///< at the same moment as the claim that begins the tenure
  while_running,   ///< while its holder works
  before_sweep,    ///< its lease has run out, and the watchdog has not looked
  against_sweep,   ///< at the same moment as the watchdog's sweep
  after_sweep,     ///< the watchdog has ended it; nobody has the job
  against_commit,  ///< at the same moment as the finisher's commit
  after_commit,    ///< the job is finished
};
inline constexpr std::size_t kTimings = 7;
[[nodiscard]] std::string_view to_string(Timing timing);
/// Two sessions act at the same moment there, and either may be first.
[[nodiscard]] bool is_concurrent(Timing timing);

/// A worker that has lost its lease tries to write.
struct Comeback {
  std::size_t worker = 0;  ///< 0 is A
  std::size_t tenure = 0;  ///< of which worker
  Timing timing = Timing::after_commit;
  std::vector<Verb> verbs{};  ///< one after the other
  /// Where two act at the same moment: how much later than the other this one starts; negative: the other.
  std::chrono::microseconds offset{0};
};

/// What a worker does while its lease is good, and how it loses it.
struct Tenure {
  int beats = 0;
  bool reports_progress = false;
  bool begins_effect = false;
  std::chrono::microseconds overshoot{0};  ///< how far the clock goes past the expiry; 0: to that very moment
  bool swept_by_successor = false;         ///< else by a watchdog of its own
};

enum class Finish {
  complete,
  exchange,  ///< settles and asks for the next job in one commit
  transact,  ///< with a write of its own in the same transaction
};

/// One race: two or three workers get the same job one after the other, each but the last loses its lease,
/// and those come back. It says everything that is decided beforehand; what is left open is who comes first
/// where two act at the same moment.
struct Schedule {
  std::uint64_t seed = 0;
  std::chrono::milliseconds lease_ttl{30'000};
  int priority = 5;
  std::vector<Tenure> tenures{};  ///< one per worker; the last finishes the job
  Finish finish = Finish::complete;
  std::vector<Comeback> comebacks{};  ///< in the order of time

  [[nodiscard]] std::size_t finisher() const { return tenures.size() - 1; }
};

/// Seed 0 is the story as it is told: A stalls, B reclaims and commits, A comes back and tries to complete.
[[nodiscard]] Schedule make_schedule(std::uint64_t seed);
/// The seed of the n-th race of many; of the first it is the seed itself.
[[nodiscard]] std::uint64_t seed_of_race(std::uint64_t seed, std::size_t number);
/// A, B, C …
[[nodiscard]] std::string worker_name(std::size_t worker);
/// One line: who comes back when, with what.
[[nodiscard]] std::string describe(const Schedule& schedule);

/// What a late writer may be told, and the evidence may say, of a comeback. More than one where two sessions
/// act at the same moment.
struct ExpectedRefusal {
  StaleReason reason = StaleReason::token_mismatch;
  std::size_t newest = 0;               ///< the worker with the newest token
  std::optional<std::size_t> holder{};  ///< the worker that is named as the current one
};
[[nodiscard]] std::vector<ExpectedRefusal> expected_refusals(const Comeback& comeback);

}  // namespace faultline::drills
