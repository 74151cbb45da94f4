#include "worker/deadline_monitor.h"

namespace faultline::worker {
namespace {

/// How long a job may wait for a slot before others should have it.
constexpr std::chrono::seconds kPatience{1};

}  // namespace

void DeadlineMonitor::expect(const Batch& batch) {
  Clock::time_point first = Clock::time_point::max();
  for (const Attempt& attempt : batch.attempts)
    first = std::min({first, attempt.deadline(), attempt.claimed_at + kPatience});
  alarm_.ask(first);
}

void DeadlineMonitor::run() {
  Clock::time_point wake = Clock::time_point::max();
  while (alarm_.wait_until(wake)) wake = check(Clock::now());
}

Clock::time_point DeadlineMonitor::check(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  std::size_t given_back = 0;
  for (const auto& batch : coordinator_.batches()) {
    for (Attempt& attempt : batch->attempts) {
      if (attempt.deadline() <= now) {
        out_of_time(attempt, now);
        continue;
      }
      if (attempt.is_waiting()) {
        if (attempt.claimed_at + kPatience <= now && attempt.take_away()) {
          coordinator_.add_outcome(attempt, Outcome::release());
          ++given_back;
          continue;
        }
        next = std::min(next, attempt.claimed_at + kPatience);
      }
      if (attempt.stop_reason() != StopReason::lease_lost) next = std::min(next, attempt.deadline());
    }
  }
  if (given_back > 0) {
    log_.tell(Severity::info, "jobs_released",
              {{"jobs", std::to_string(given_back)}, {"why", "they waited for a slot too long"}});
  }
  return next;
}

void DeadlineMonitor::out_of_time(Attempt& attempt, Clock::time_point now) {
  const bool run_time_is_over = attempt.run_limit() && *attempt.run_limit() <= now;
  if (!attempt.is_running() && !attempt.is_waiting()) return;
  if (attempt.stop(run_time_is_over ? StopReason::run_max : StopReason::lease_lost)) {
    meter_.lost(attempt);
    log_.tell(Severity::warning, "lease_lost", attempt.job,
              {{"reason", run_time_is_over ? "run_max" : "not_renewed_in_time"}});
  }
  if (attempt.take_away()) coordinator_.drop(attempt);
}

}  // namespace faultline::worker
