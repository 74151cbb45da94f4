#include "worker/heartbeater.h"

#include <algorithm>

namespace faultline::worker {
namespace {

/// What cannot be beaten now is tried again after this part of the TTL.
constexpr int kRetryPart = 10;

Clock::time_point beat_due(const Attempt& attempt) { return attempt.beaten_at() + attempt.job.lease_ttl / 3; }

/// Renewing goes on while the handler winds up after a drain's stop. Other stops are final: the lease cannot
/// or must not be renewed.
bool to_be_renewed(const Attempt& attempt, Clock::time_point now) {
  const StopReason reason = attempt.stop_reason();
  if (reason != StopReason::none && reason != StopReason::draining) return false;
  // A lease that lasts until the maximum run time cannot be renewed any further.
  if (attempt.run_limit() && attempt.deadline() >= *attempt.run_limit()) return false;
  return now < attempt.deadline();
}

}  // namespace

void Heartbeater::expect(const Batch& batch) {
  Clock::time_point first = Clock::time_point::max();
  for (const Attempt& attempt : batch.attempts) first = std::min(first, beat_due(attempt));
  alarm_.ask(first);
}

Heartbeater::Round Heartbeater::due(Clock::time_point now) const {
  Round round;
  round.batches = coordinator_.batches();
  bool any = false;
  for (const auto& batch : round.batches) {
    for (Attempt& attempt : batch->attempts) {
      if (!to_be_renewed(attempt, now)) continue;
      // Those that are due soon go along, so that all of a worker's leases come into step.
      if (attempt.beaten_at() + attempt.job.lease_ttl / 4 > now) {
        round.next = std::min(round.next, beat_due(attempt));
      } else if (attempt.begin_fenced_call()) {
        round.attempts.push_back(&attempt);
        any = any || beat_due(attempt) <= now;
      } else {
        // Its settlement is on its way, or through. It may come back; until then there is nothing to be done.
        round.next = std::min(round.next, now + attempt.job.lease_ttl / kRetryPart);
      }
    }
  }
  if (any) return round;
  for (Attempt* attempt : round.attempts) {
    attempt->end_fenced_call();
    round.next = std::min(round.next, beat_due(*attempt));
  }
  round.attempts.clear();
  return round;
}

void Heartbeater::run() {
  Clock::time_point wake = Clock::time_point::max();
  while (alarm_.wait_until(wake)) {
    Round round = due(Clock::now());
    if (!round.attempts.empty()) {
      beat(round.attempts);
      for (const Attempt* attempt : round.attempts) {
        const Clock::time_point soon = Clock::now() + attempt->job.lease_ttl / kRetryPart;
        if (to_be_renewed(*attempt, Clock::now()))
          round.next = std::min(round.next, std::max(beat_due(*attempt), soon));
      }
    }
    wake = round.next;
    coordinator_.fenced_calls_over();
  }
}

void Heartbeater::beat(const std::vector<Attempt*>& attempts) {
  std::vector<Lease> leases;
  leases.reserve(attempts.size());
  std::vector<Stage> stages;
  stages.reserve(attempts.size());
  for (const Attempt* attempt : attempts) {
    leases.push_back(attempt->job.lease);
    stages.push_back(attempt->stage());
  }
  const Clock::time_point sent_at = Clock::now();
  const auto beats = link_.heartbeat(leases, stages);
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    Attempt& attempt = *attempts[i];
    attempt.end_fenced_call();
    if (!beats) continue;
    const Beat& beat = (*beats)[i];
    if (beat.status == Beat::Status::lost) {
      meter_.stale("heartbeat", beat.stale);
      lost(attempt, beat.stale);
    } else if (beat.status == Beat::Status::cancel_requested) {
      cancelled(attempt, beat);
    } else if (beat.status == Beat::Status::renewed) {
      attempt.renew(sent_at, attempt.job.lease_ttl);
      meter_.renewed(attempt);
    }
  }
  if (!beats) {
    // The one that runs out first stands for all of them.
    const Attempt& first =
        **std::ranges::min_element(attempts, {}, [](const Attempt* a) { return a->deadline(); });
    log_.tell(Severity::warning, "heartbeat_lost", first.job,
              {{"leases", std::to_string(leases.size())}, {"error", beats.error().describe()}});
  }
}

void Heartbeater::lost(Attempt& attempt, const Stale& stale) {
  if (trace::ExecutionSpan* execution = attempt.execution()) execution->refused("heartbeat", stale);
  if (!attempt.stop(StopReason::lease_lost)) return;
  meter_.lost(attempt);
  log_.tell(Severity::warning, "lease_lost", attempt.job, fields_of(stale));
  if (attempt.take_away()) coordinator_.drop(attempt);
}

void Heartbeater::cancelled(Attempt& attempt, const Beat& beat) {
  if (!attempt.cancel(beat.cancel_reason.value_or(""))) return;
  if (attempt.take_away()) coordinator_.add_outcome(attempt, attempt.cancellation());
}

}  // namespace faultline::worker
