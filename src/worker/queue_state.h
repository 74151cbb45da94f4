#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <random>
#include <string>

#include "worker/attempt.h"

namespace faultline::worker {

/// What a worker knows of one of its queues: what it holds of it, how fast it goes, and when to look again.
/// Not thread-safe: the coordinator guards it.
class QueueState {
 public:
  struct Options {
    std::string queue;
    std::size_t concurrency = 0;
    unsigned weight = 1;
    std::size_t prefetch_max = 0;
    std::chrono::milliseconds poll_max{};
  };

  explicit QueueState(Options options) : options_(std::move(options)) {}

  [[nodiscard]] const Options& options() const { return options_; }

  std::deque<Attempt*> waiting;  ///< claimed, and not yet taken by a slot; some may have been taken away
  std::size_t suspects = 0;      ///< claimed, and not yet taken by a slot; not among the waiting
  std::size_t busy = 0;          ///< slots that have jobs of it
  std::size_t claiming = 0;      ///< asked for by claims that are under way
  double turn = 0;               ///< of start-time fair queueing: what it has had so far, by its weight

  /// A slot counts as one job, however many it took: those after a slow one are taken away from it.
  [[nodiscard]] std::size_t in_hand() const { return waiting.size() + suspects + busy + claiming; }
  [[nodiscard]] bool may_have_a_slot() const { return busy < options_.concurrency; }

  // How far to claim ahead.

  void finished(Clock::time_point now, Clock::duration took);
  /// Jobs to hold beyond the slots: about as many as were finished in the last moments, and none if handlers
  /// take long. So short jobs never wait for a claim, and long ones are left for others.
  [[nodiscard]] std::size_t ahead(Clock::time_point now) const;
  /// Jobs that a slot takes at a time: more than one only if all of the last ones were over in no time.
  [[nodiscard]] std::size_t chunk() const;

  // When to look.

  [[nodiscard]] Clock::time_point poll_at() const { return poll_at_; }
  /// There is something new, somebody says.
  void announced(Clock::time_point now);
  void claim_began() { announced_meanwhile_ = false; }
  void claim_ended(Clock::time_point now, std::size_t asked, std::size_t got);
  void claim_failed(Clock::time_point now);

 private:
  void roll(Clock::time_point now);

  Options options_;
  Clock::time_point poll_at_{};
  std::chrono::microseconds wait_{kWaitMin};
  bool announced_meanwhile_ = false;
  std::minstd_rand jitter_{std::random_device{}()};

  static constexpr std::chrono::microseconds kWaitMin{2'000};
  static constexpr std::chrono::milliseconds kHorizon{50};
  Clock::time_point window_began_{};
  std::size_t window_count_ = 0;
  std::size_t last_window_count_ = 0;
  Clock::duration window_longest_{};
  Clock::duration last_window_longest_ = std::chrono::hours{1};  // nothing is known yet
  double mean_s_ = 0;
};

}  // namespace faultline::worker
