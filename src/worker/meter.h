#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <utility>

#include "metrics/metrics.h"
#include "worker/attempt.h"

namespace faultline::worker {

/// Counts what a worker does. What goes through a server is counted by the server; then only that is counted
/// here which no one else sees. Thread-safe.
class Meter {
 public:
  Meter(std::shared_ptr<metrics::Metrics> metrics, bool through_server)
      : metrics_(std::move(metrics)), has_database_(!through_server) {}

  [[nodiscard]] metrics::Metrics& metrics() const { return *metrics_; }

  void connected(bool is) const { metrics_->connected(is); }
  void executed(std::span<const metrics::Executed> executed) const { metrics_->executed(executed); }
  /// The attempt was stopped because its lease is gone.
  void lost(const Attempt& attempt) const { metrics_->lost(attempt.job.queue); }

  void claimed(std::span<const ClaimedJob> jobs) const {
    if (has_database_) metrics_->claimed(jobs);
  }
  void renewed(const Attempt& attempt) const {
    if (has_database_) metrics_->renewed(metrics_->series(attempt.job.queue, attempt.job.kind));
  }
  /// The verb, or the outcome that was to be written.
  template <class Verb>
  void stale(const Verb& verb, const Stale& stale) const {
    if (has_database_) metrics_->stale(verb, stale.reason);
  }

  /// Outcomes of one commit.
  class Settlements {
   public:
    explicit Settlements(const Meter& meter) : meter_(meter), find_(*meter.metrics_) {}
    Settlements(const Settlements&) = delete;
    Settlements& operator=(const Settlements&) = delete;
    ~Settlements() { meter_.metrics_->settled(settled_); }

    void add(const Attempt& attempt, Outcome::Kind outcome) {
      if (!meter_.has_database_) return;
      settled_.push_back({.series = &find_(attempt.job.queue, attempt.job.kind),
                          .outcome = outcome,
                          .attempts_left = attempt.job.attempt < attempt.job.attempts_max,
                          .held = now_ - attempt.claimed_at});
    }

   private:
    const Meter& meter_;
    metrics::Finder find_;
    const Clock::time_point now_ = Clock::now();
    std::vector<metrics::Settled> settled_;
  };

 private:
  std::shared_ptr<metrics::Metrics> metrics_;
  bool has_database_;
};

}  // namespace faultline::worker
