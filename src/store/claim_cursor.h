#pragma once

#include <array>
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "faultline/job.h"

namespace faultline::store {

inline constexpr int kPriorities = 10;

/// Where claims begin to look. Jobs that were taken long ago leave entries in the index that a long-held
/// snapshot keeps alive, and every claim from the beginning would walk over all of them. So a claim begins
/// after the last job that was found, as long as claims come back full.
///
/// A job may still turn up in front of that place: its transaction committed late, or it was released, or
/// scheduled for the past. So claims look from the beginning whenever one comes back short, when somebody in
/// this process puts a job in front of others, after a claim that failed, and otherwise as often as costs at
/// most a twentieth of the time, though at least every other second.
///
/// All of this decides only when a job is found, never whether it may be taken. Thread-safe.
class ClaimCursor {
 public:
  struct Position {
    DatabaseTime run_at = DatabaseTime::min();
    Uuid id{};

    friend auto operator<=>(const Position&, const Position&) = default;
  };
  struct Scan {
    bool from_the_beginning = true;
    std::array<Position, kPriorities> since{};
  };
  using Clock = std::chrono::steady_clock;

  /// The next look at a queue in a bucket.
  [[nodiscard]] Scan next_scan(const std::string& queue, std::int16_t bucket, Clock::time_point now);
  /// What a look found. True: it came back short and did not begin at the beginning, so look again.
  [[nodiscard]] bool found(const std::string& queue, std::int16_t bucket, const Scan& scan,
                           const std::vector<ClaimedJob>& jobs, std::size_t first_job, bool full,
                           Clock::time_point begun, Clock::time_point now);
  /// A job was put where claims have passed already: the next look at any queue is from the beginning.
  void rewind();

 private:
  struct ScanState {
    std::array<Position, kPriorities> since{};
    bool busy = false;  ///< the last claim came back full
    Clock::time_point full_scan_due{};
    bool full_scan_is_slow = false;
  };

  std::mutex mutex_;
  std::map<std::pair<std::string, std::int16_t>, ScanState> scans_;  // guarded by mutex_
};

}  // namespace faultline::store
