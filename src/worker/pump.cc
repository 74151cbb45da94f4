#include "worker/pump.h"

#include <algorithm>

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
  std::vector<Answer> unknown = take_out(work.answers, [](const Answer& a) { return a.maybe_committed; });
  const bool answers_resolved = resolve(unknown);
  if (answers_resolved) std::ranges::move(unknown, std::back_inserter(work.answers));
  // A claim goes along with settlements of one kind, and nearly all are successes.
  std::vector<Answer> others = take_out(work.answers, [](const Answer& a) { return !is_success(a); });
  if (!others.empty() && !settle(others)) {
    board_.put_back(std::move(work.answers));
    if (work.claim) board_.claim_failed(*work.claim);
    return;
  }
  if (work.answers.empty()) {
    if (work.claim) claim(*work.claim);
    return;
  }
  if (!work.claim) {
    static_cast<void>(settle(work.answers));
    return;
  }
  const Clock::time_point sent_at = Clock::now();
  auto exchanged = store_.exchange(settlements_of(work.answers), request(*work.claim));
  if (!exchanged) {
    board_.claim_failed(*work.claim);
    settle_failed(std::move(work.answers), exchanged.error());
    return;
  }
  succeeded();
  for (const ClaimedJob& job : exchanged->claimed) log_.tell(Severity::debug, "lease_acquired", job);
  board_.claimed(*work.claim, std::move(exchanged->claimed), sent_at);
  take_verdicts(std::move(work.answers), exchanged->verdicts);
}

bool Pump::resolve(std::vector<Answer>& answers) {
  if (answers.empty()) return true;
  std::vector<Lease> leases;
  for (const Answer& answer : answers) leases.push_back(answer.attempt->job.lease);
  auto outcomes = store_.resolve(leases);
  if (!outcomes) {
    board_.put_back(std::move(answers));
    answers.clear();
    failed(outcomes.error());
    return false;
  }
  std::vector<Answer> committed;
  std::vector<Answer> open;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i].maybe_committed = false;
    ((*outcomes)[i] == answers[i].outcome.kind ? committed : open).push_back(std::move(answers[i]));
  }
  for (const Answer& answer : committed) tell_settled(answer);
  board_.settled(committed, committed.size());
  answers = std::move(open);
  return true;
}

bool Pump::settle(std::vector<Answer>& answers) {
  auto verdicts = store_.settle(settlements_of(answers));
  if (!verdicts) return settle_failed(std::move(answers), verdicts.error());
  succeeded();
  take_verdicts(std::move(answers), *verdicts);
  return true;
}

bool Pump::settle_failed(std::vector<Answer> answers, const Error& error) {
  if (!is_hopeless(error)) {
    board_.put_back(std::move(answers));
    failed(error);
    return false;
  }
  if (answers.size() == 1) {
    // The attempt ends when its lease does. Nobody else's outcome must wait for this one.
    log_.tell(Severity::error, "settlement_refused", answers.front().attempt->job,
              {{"error", error.describe()}});
    board_.settled(answers, 0);
    return true;
  }
  bool reached = true;
  for (Answer& answer : answers) {
    std::vector<Answer> single;
    single.push_back(std::move(answer));
    reached = settle(single) && reached;
  }
  return reached;
}

void Pump::claim(const Board::Claim& claim) {
  const Clock::time_point sent_at = Clock::now();
  auto jobs = store_.claim(request(claim));
  if (!jobs) {
    board_.claim_failed(claim);
    failed(jobs.error());
    return;
  }
  succeeded();
  for (const ClaimedJob& job : *jobs) log_.tell(Severity::debug, "lease_acquired", job);
  board_.claimed(claim, std::move(*jobs), sent_at);
}

void Pump::take_verdicts(std::vector<Answer> answers, const std::vector<Verdict>& verdicts) {
  std::vector<Answer> unknown;
  std::vector<Answer> ended;
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
    if (verdict.committed()) {
      ++committed;
      tell_settled(answer);
    } else {
      ++stale;
      Log::Fields fields = fields_of(verdict.stale);
      fields.insert(fields.begin(), {"verb", std::string{to_string(answer.outcome.kind)}});
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
    log_.tell(Severity::error, "database_lost", {{"error", error.describe()}});
  }
}

void Pump::succeeded() {
  if (board_.go_on()) log_.tell(Severity::info, "database_back");
}

}  // namespace faultline::worker
