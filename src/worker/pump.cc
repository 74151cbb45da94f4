#include "worker/pump.h"

#include <algorithm>
#include <utility>

namespace faultline::worker {
namespace {

std::vector<Settlement> settlements_of(const std::vector<Answer>& answers) {
  std::vector<Settlement> settlements;
  settlements.reserve(answers.size());
  for (const Answer& answer : answers)
    settlements.push_back({.lease = answer.attempt->job.lease, .outcome = answer.outcome});
  return settlements;
}

/// Moves what fulfils `is` out of `answers`.
template <class F>
std::vector<Answer> take_out(std::vector<Answer>& answers, const F& is) {
  const auto rest =
      std::stable_partition(answers.begin(), answers.end(), [&](const Answer& a) { return !is(a); });
  std::vector<Answer> taken{std::make_move_iterator(rest), std::make_move_iterator(answers.end())};
  answers.erase(rest, answers.end());
  return taken;
}

/// Sent again, it would be refused again.
bool is_hopeless(const Error& error) {
  return error.code == ErrorCode::invalid_argument || error.code == ErrorCode::payload_invalid ||
         error.code == ErrorCode::payload_too_large || error.code == ErrorCode::internal;
}

bool is_success(const Answer& answer) { return answer.outcome.kind == Outcome::Kind::succeeded; }

}  // namespace

void Pump::run() {
  Board::Work work;
  while (board_.next_work(work)) settle_and_claim(work);
}

void Pump::settle_and_claim(Board::Work& work) {
  // What may have been committed is told so, and a claim goes along with settlements of one kind, nearly all
  // of which are successes.
  std::vector<Answer> resent = take_out(work.answers, [](const Answer& a) { return a.maybe_committed; });
  std::vector<Answer> others = take_out(work.answers, [](const Answer& a) { return !is_success(a); });
  const bool reached = (resent.empty() || settle(resent, true)) && (others.empty() || settle(others, false));
  if (!reached) {
    board_.put_back(std::move(others));
    board_.put_back(std::move(work.answers));
    if (work.claim) board_.claim_failed(*work.claim);
    return;
  }
  if (work.answers.empty()) {
    if (work.claim) claim(*work.claim);
    return;
  }
  if (!work.claim) {
    static_cast<void>(settle(work.answers, false));
    return;
  }
  auto exchanged = link_.exchange(settlements_of(work.answers), request(*work.claim));
  if (!exchanged) {
    board_.claim_failed(*work.claim);
    settle_failed(std::move(work.answers), false, exchanged.error());
    return;
  }
  succeeded();
  claimed(*work.claim, std::move(exchanged->claimed));
  take_verdicts(std::move(work.answers), exchanged->verdicts);
}

bool Pump::settle(std::vector<Answer>& answers, bool resent) {
  auto verdicts = link_.settle(settlements_of(answers), resent);
  std::vector<Answer> sent = std::exchange(answers, {});
  if (!verdicts) return settle_failed(std::move(sent), resent, verdicts.error());
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

bool Pump::settle_failed(std::vector<Answer> answers, bool resent, const Error& error) {
  if (!is_hopeless(error)) {
    board_.put_back(std::move(answers));
    failed(error);
    return false;
  }
  if (answers.size() == 1) {
    // The attempt ends when its lease does. Nobody else's outcome must wait for this one.
    log_.tell(Severity::error, "settlement_refused", answers.front().attempt->job,
              {{"error", error.describe()}});
    if (trace::Execution* execution = answers.front().attempt->execution())
      execution->end("refused", error.describe());
    board_.settled(answers, 0);
    return true;
  }
  bool reached = true;
  for (Answer& answer : answers) {
    std::vector<Answer> single;
    single.push_back(std::move(answer));
    reached = settle(single, resent) && reached;
  }
  return reached;
}

void Pump::claim(const Board::Claim& claim) {
  auto jobs = link_.claim(request(claim));
  if (!jobs) {
    board_.claim_failed(claim);
    failed(jobs.error());
    return;
  }
  succeeded();
  claimed(claim, std::move(*jobs));
}

void Pump::claimed(const Board::Claim& claim, link::Link::Claimed claimed) {
  for (const ClaimedJob& job : claimed.jobs) log_.tell(Severity::debug, "lease_acquired", job);
  meter_.claimed(claimed.jobs);
  const bool some = !claimed.jobs.empty();
  board_.claimed(claim, std::move(claimed.jobs), claimed.since);
  // Slots that were promised to several queues are taken now.
  if (!some || !link_.through_server()) return;
  for (const Board::Want& want : board_.wants()) link_.want(want.queue, want.limit);
}

void Pump::take_verdicts(std::vector<Answer> answers, const std::vector<Verdict>& verdicts) {
  std::vector<Answer> unknown;
  std::vector<Answer> ended;
  Meter::Settlements counted{meter_};
  std::size_t committed = 0;
  std::size_t stale = 0;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    Answer& answer = answers[i];
    const Verdict& verdict = verdicts[i];
    if (verdict.status == Verdict::Status::unknown) {
      answer.maybe_committed = true;
      unknown.push_back(std::move(answer));
      continue;
    }
    trace::Execution* execution = answer.attempt->execution();
    if (verdict.committed()) {
      ++committed;
      if (execution != nullptr) execution->end(answer.outcome);
      counted.add(*answer.attempt, answer.outcome.kind);
      tell_settled(answer);
    } else {
      ++stale;
      meter_.stale(answer.outcome.kind, verdict.stale);
      Log::Fields fields = fields_of(verdict.stale);
      fields.insert(fields.begin(), {"verb", std::string{to_string(answer.outcome.kind)}});
      if (execution != nullptr) {
        execution->refused(to_string(answer.outcome.kind), verdict.stale);
        execution->end("stale");
      }
      log_.tell(Severity::warning, "stale_write_blocked", answer.attempt->job, std::move(fields));
    }
    ended.push_back(std::move(answer));
  }
  if (stale > 0) board_.count_stale(stale);
  board_.settled(ended, committed);
  if (!unknown.empty()) board_.put_back(std::move(unknown));
}

void Pump::tell_settled(const Answer& answer) const {
  using Kind = Outcome::Kind;
  const bool buried = answer.outcome.kind == Kind::buried;
  const Severity severity = buried ? Severity::warning : Severity::debug;
  if (!log_.wants(severity)) return;
  Log::Fields fields{{"outcome", std::string{to_string(answer.outcome.kind)}}};
  if (answer.outcome.error) fields.emplace_back("error", *answer.outcome.error);
  log_.tell(severity, buried ? "job_buried" : "job_settled", answer.attempt->job, std::move(fields));
}

void Pump::failed(const Error& error) {
  if (board_.rest()) {
    meter_.connected(false);
    log_.tell(Severity::error, link_.through_server() ? "server_lost" : "database_lost",
              {{"error", error.describe()}});
  }
}

void Pump::succeeded() {
  if (!board_.go_on()) return;
  meter_.connected(true);
  log_.tell(Severity::info, link_.through_server() ? "server_back" : "database_back");
}

}  // namespace faultline::worker
