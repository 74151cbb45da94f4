#include "worker/claim_settler.h"

#include <algorithm>
#include <utility>

namespace faultline::worker {
namespace {

std::vector<Settlement> settlements_of(const std::vector<PendingOutcome>& outcomes) {
  std::vector<Settlement> settlements;
  settlements.reserve(outcomes.size());
  for (const PendingOutcome& pending : outcomes)
    settlements.push_back({.lease = pending.attempt->job.lease, .outcome = pending.outcome});
  return settlements;
}

/// Moves what fulfils `is` out of `outcomes`.
template <class F>
std::vector<PendingOutcome> take_out(std::vector<PendingOutcome>& outcomes, const F& is) {
  const auto rest = std::stable_partition(outcomes.begin(), outcomes.end(),
                                          [&](const PendingOutcome& p) { return !is(p); });
  std::vector<PendingOutcome> taken{std::make_move_iterator(rest), std::make_move_iterator(outcomes.end())};
  outcomes.erase(rest, outcomes.end());
  return taken;
}

/// Sent again, it would be refused again.
bool is_hopeless(const Error& error) {
  return error.code == ErrorCode::invalid_argument || error.code == ErrorCode::payload_invalid ||
         error.code == ErrorCode::payload_too_large || error.code == ErrorCode::internal;
}

bool is_success(const PendingOutcome& pending) { return pending.outcome.kind == Outcome::Kind::succeeded; }

}  // namespace

void ClaimSettler::run() {
  Coordinator::Work work;
  while (coordinator_.next_work(work)) settle_and_claim(work);
}

void ClaimSettler::settle_and_claim(Coordinator::Work& work) {
  // A claim goes along with settlements of one kind, nearly all of which are successes.
  std::vector<PendingOutcome> others =
      take_out(work.outcomes, [](const PendingOutcome& p) { return !is_success(p); });
  if (!others.empty() && !settle(others)) {
    coordinator_.put_back(std::move(work.outcomes));
    if (work.claim) coordinator_.claim_failed(*work.claim);
    return;
  }
  if (work.outcomes.empty()) {
    if (work.claim) claim(*work.claim);
    return;
  }
  if (!work.claim) {
    static_cast<void>(settle(work.outcomes));
    return;
  }
  auto exchanged = link_.exchange(settlements_of(work.outcomes), request(*work.claim));
  if (!exchanged) {
    coordinator_.claim_failed(*work.claim);
    settle_failed(std::move(work.outcomes), exchanged.error());
    return;
  }
  succeeded();
  claimed(*work.claim, std::move(exchanged->claimed));
  take_verdicts(std::move(work.outcomes), exchanged->verdicts);
}

bool ClaimSettler::settle(std::vector<PendingOutcome>& outcomes) {
  auto verdicts = link_.settle(settlements_of(outcomes));
  std::vector<PendingOutcome> sent = std::exchange(outcomes, {});
  if (!verdicts) return settle_failed(std::move(sent), verdicts.error());
  const bool answered = std::ranges::any_of(
      *verdicts, [](const Verdict& verdict) { return verdict.status != Verdict::Status::unknown; });
  if (answered)
    succeeded();
  else
    failed({.code = ErrorCode::outcome_unknown,
            .message = "the answer to a settlement was lost, and nobody could be asked in time",
            .hint = "it is sent again"});
  take_verdicts(std::move(sent), *verdicts);
  return true;
}

bool ClaimSettler::settle_failed(std::vector<PendingOutcome> outcomes, const Error& error) {
  if (!is_hopeless(error)) {
    coordinator_.put_back(std::move(outcomes));
    failed(error);
    return false;
  }
  if (outcomes.size() == 1) {
    // The attempt ends when its lease does. Nobody else's outcome must wait for this one.
    log_.tell(Severity::error, "settlement_refused", outcomes.front().attempt->job,
              {{"error", error.describe()}});
    if (trace::ExecutionSpan* execution = outcomes.front().attempt->execution())
      execution->end("refused", error.describe());
    coordinator_.settled(outcomes, {});
    return true;
  }
  bool reached = true;
  for (PendingOutcome& pending : outcomes) {
    std::vector<PendingOutcome> single;
    single.push_back(std::move(pending));
    reached = settle(single) && reached;
  }
  return reached;
}

void ClaimSettler::claim(const Coordinator::Claim& claim) {
  auto jobs = link_.claim(request(claim));
  if (!jobs) {
    coordinator_.claim_failed(claim);
    failed(jobs.error());
    return;
  }
  succeeded();
  claimed(claim, std::move(*jobs));
}

void ClaimSettler::claimed(const Coordinator::Claim& claim, Link::Claimed claimed) {
  for (const ClaimedJob& job : claimed.jobs) log_.tell(Severity::debug, "lease_acquired", job);
  meter_.claimed(claimed.jobs);
  const bool some = !claimed.jobs.empty();
  coordinator_.claimed(claim, std::move(claimed.jobs), claimed.since);
  // Slots that were promised to several queues are taken now.
  if (!some || !link_.through_server()) return;
  for (const Coordinator::Want& want : coordinator_.wants()) link_.want(want.queue, want.limit);
}

void ClaimSettler::take_verdicts(std::vector<PendingOutcome> outcomes, const std::vector<Verdict>& verdicts) {
  std::vector<PendingOutcome> unknown;
  std::vector<PendingOutcome> ended;
  Meter::Settlements counted{meter_};
  WorkerStats written;
  std::size_t stale = 0;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    PendingOutcome& pending = outcomes[i];
    const Verdict& verdict = verdicts[i];
    if (verdict.status == Verdict::Status::unknown) {
      pending.maybe_committed = true;
      unknown.push_back(std::move(pending));
      continue;
    }
    trace::ExecutionSpan* execution = pending.attempt->execution();
    if (verdict.committed()) {
      // Repeated or not: it is this worker's own outcome, whose answer comes only now.
      ++written.settled;
      if (pending.outcome.kind == Outcome::Kind::released) ++written.released;
      if (execution != nullptr) execution->end(pending.outcome);
      counted.add(*pending.attempt, pending.outcome.kind);
      tell_settled(pending);
    } else {
      ++stale;
      meter_.stale(pending.outcome.kind, verdict.stale);
      Log::Fields fields = fields_of(verdict.stale);
      fields.insert(fields.begin(), {"verb", std::string{to_string(pending.outcome.kind)}});
      if (execution != nullptr) {
        execution->refused(to_string(pending.outcome.kind), verdict.stale);
        execution->end("stale");
      }
      log_.tell(Severity::warning, "stale_write_blocked", pending.attempt->job, std::move(fields));
    }
    ended.push_back(std::move(pending));
  }
  if (stale > 0) coordinator_.count_stale(stale);
  coordinator_.settled(ended, written);
  if (!unknown.empty()) coordinator_.put_back(std::move(unknown));
}

void ClaimSettler::tell_settled(const PendingOutcome& pending) const {
  using Kind = Outcome::Kind;
  const bool buried = pending.outcome.kind == Kind::buried;
  const Severity severity = buried ? Severity::warning : Severity::debug;
  if (!log_.wants(severity)) return;
  Log::Fields fields{{"outcome", std::string{to_string(pending.outcome.kind)}}};
  if (pending.outcome.error) fields.emplace_back("error", *pending.outcome.error);
  log_.tell(severity, buried ? "job_buried" : "job_settled", pending.attempt->job, std::move(fields));
}

void ClaimSettler::failed(const Error& error) {
  coordinator_.back_off();
  outages_.failed(error);
}

void ClaimSettler::succeeded() {
  coordinator_.resume();
  outages_.passed();
}

}  // namespace faultline::worker
