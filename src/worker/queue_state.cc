#include "worker/queue_state.h"

#include <algorithm>

namespace faultline::worker {
namespace {

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void QueueState::roll(Clock::time_point now) {
  if (now - window_began_ < kHorizon) return;
  const bool adjacent = now - window_began_ < 2 * kHorizon;
  last_window_count_ = adjacent ? window_count_ : 0;
  // A pause says nothing about how long handlers take.
  if (window_count_ > 0) last_window_longest_ = window_longest_;
  window_count_ = 0;
  window_longest_ = {};
  window_began_ = now;
}

void QueueState::finished(Clock::time_point now, Clock::duration took) {
  roll(now);
  ++window_count_;
  window_longest_ = std::max(window_longest_, took);
  constexpr double kNewest = 0.1;
  mean_s_ = mean_s_ == 0 ? seconds(took) : mean_s_ + kNewest * (seconds(took) - mean_s_);
}

std::size_t QueueState::ahead(Clock::time_point now) const {
  const bool recent = now - window_began_ < 2 * kHorizon;
  const std::size_t finished = recent ? std::max(window_count_, last_window_count_) : 0;
  const double by_time =
      static_cast<double>(options_.concurrency) * seconds(kHorizon) / std::max(mean_s_, 1e-7);
  const double by_rate = 2.0 * static_cast<double>(finished);
  return std::min(options_.prefetch_max, static_cast<std::size_t>(std::min(by_time, by_rate)));
}

std::size_t QueueState::chunk() const {
  constexpr std::size_t kChunkMax = 32;
  constexpr double kChunkSeconds = 100e-6;
  const double longest = seconds(std::max(window_longest_, last_window_longest_));
  if (longest > kChunkSeconds) return 1;
  return std::clamp<std::size_t>(static_cast<std::size_t>(kChunkSeconds / std::max(mean_s_, 1e-7)), 1,
                                 kChunkMax);
}

void QueueState::announced(Clock::time_point now) {
  announced_meanwhile_ = true;
  poll_at_ = now;
  wait_ = kWaitMin;
}

void QueueState::claim_ended(Clock::time_point now, std::size_t asked, std::size_t got) {
  if (got > 0) wait_ = kWaitMin;
  if (got == asked || announced_meanwhile_) {
    poll_at_ = now;
  } else {
    // Of several workers that wait alike, none should always come second.
    std::uniform_real_distribution<double> spread{0.8, 1.2};
    poll_at_ = now + std::chrono::duration_cast<Clock::duration>(wait_ * spread(jitter_));
    wait_ = std::min<std::chrono::microseconds>(wait_ * 2, options_.poll_max);
  }
}

void QueueState::claim_failed(Clock::time_point now) {
  // How long to leave the database alone is the coordinator's to say.
  poll_at_ = now;
}

}  // namespace faultline::worker
