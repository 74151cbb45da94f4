#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "faultline/job.h"
#include "pg/connection.h"

namespace faultline::store {

/// Decides which queues with due jobs are announced to idle workers. An announcement is a hint: it may be
/// lost, and most are not even made, because each takes a lock of the whole server's until its transaction
/// has committed. A worker that was woken looks again and again with growing waits, and so finds what came in
/// the shadow of the announcement that woke it.
///
/// Thread-safe. (A transaction with an announcement in it cannot be prepared for a two-phase commit.)
class Announcer {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::string_view kChannel = "faultline_jobs";  ///< the payload is the queue's name
  /// At most one per queue in this time.
  static constexpr std::chrono::milliseconds kInterval{2};

  /// When the announcement is delivered: its shadow is no good to others if that is later, at the end of a
  /// transaction of the caller's.
  enum class Commit { at_once, later };

  /// Whether an announcement is to be made now. If so, it counts as made.
  [[nodiscard]] bool due(std::string_view queue, Commit commit, Clock::time_point now = Clock::now());

  /// Adds an announcement for each of these queues to a unit, as far as they are due.
  void announce(const std::set<std::string>& queues, Commit commit, pg::Unit& unit);

 private:
  using Made = std::map<std::string, Clock::time_point, std::less<>>;

  std::mutex mutex_;
  Made at_once_;  // guarded by mutex_; when each queue was last announced
  Made later_;    // the same for Commit::later
};

/// Whether a new job can be claimed as soon as it is committed. The time of one with a `run_at` is compared
/// by the database alone: it is found by polling.
[[nodiscard]] inline bool due_at_once(const NewJob& job) {
  return !job.run_at && job.delay.value_or(std::chrono::milliseconds{0}).count() == 0;
}

}  // namespace faultline::store
