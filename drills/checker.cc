#include "drills/checker.h"

#include <algorithm>

namespace faultline::drills {
namespace {

using Kind = Violation::Kind;

std::string who(const Lease& lease) {
  return lease.worker + " (token " + std::to_string(lease.token.value) + ")";
}

class Check {
 public:
  Check(const RaceHistory& history, const Findings& findings) : history_(history), findings_(findings) {}

  RaceVerdict run() {
    verdict_.late_writes = history_.late_writes.size();
    check_claims();
    check_success();
    check_ledger();
    check_live();
    check_late_writes();
    check_effects();
    check_writes();
    // One that was said to be refused, and left its mark all the same, is one too.
    if (verdict_.accepted == 0 && std::ranges::find(verdict_.violations, Kind::stale_accepted,
                                                    &Violation::kind) != verdict_.violations.end()) {
      verdict_.accepted = 1;
    }
    return std::move(verdict_);
  }

 private:
  void violated(Kind kind, std::string text) { verdict_.violations.push_back({kind, std::move(text)}); }

  /// Nobody in a race that ended before its time.
  [[nodiscard]] const Lease* finisher() const { return history_.finish ? &history_.leases.back() : nullptr; }

  /// Every claim raised the token and got a lease id of its own.
  void check_claims() {
    for (std::size_t i = 1; i < history_.leases.size(); ++i) {
      const Lease& before = history_.leases[i - 1];
      const Lease& after = history_.leases[i];
      if (after.token <= before.token)
        violated(Kind::other, "the claim of " + who(after) + " did not raise the token of " + who(before));
    }
    for (std::size_t i = 0; i < history_.leases.size(); ++i) {
      for (std::size_t k = i + 1; k < history_.leases.size(); ++k) {
        if (history_.leases[i].lease_id == history_.leases[k].lease_id)
          violated(Kind::other, who(history_.leases[k]) + " got the lease id of " + who(history_.leases[i]));
      }
    }
  }

  /// One success, the finisher's, with what it gave.
  void check_success() {
    for (const auto& row : findings_.ledger) {
      if (row.outcome != "succeeded") continue;
      ++verdict_.successes;
      verdict_.reclaimed = verdict_.reclaimed || row.token >= FenceToken{2};
      if (finisher() == nullptr || row.lease_id != finisher()->lease_id || row.token != finisher()->token ||
          row.worker != finisher()->worker) {
        violated(Kind::stale_accepted, "the success in the ledger is of " + row.worker + " (token " +
                                           std::to_string(row.token.value) + "), who had lost the job");
      } else if (row.result != history_.result) {
        violated(Kind::other,
                 "the ledger's result is \"" + row.result + "\" instead of \"" + history_.result + "\"");
      }
    }
    if (verdict_.successes == 0) violated(Kind::other, "there is no success in the ledger");
    if (verdict_.successes > 1) {
      violated(Kind::duplicate, "the job succeeded " + std::to_string(verdict_.successes) + " times");
    }
    if (history_.finish && history_.finish->status != Verdict::Status::committed)
      violated(Kind::other, "the commit of " + who(*finisher()) + " was refused, though it had the job");
    if (verdict_.successes > 0 && !verdict_.reclaimed)
      violated(Kind::other, "the job was not reclaimed: no success has a token of 2 or more");
  }

  /// One row per claim and none besides: the leases that were lost have expired, and nothing else became of
  /// them.
  void check_ledger() {
    for (const auto& row : findings_.ledger) {
      const auto lease = std::ranges::find_if(history_.leases, [&](const Lease& l) {
        return l.token == row.token && row.lease_id == l.lease_id;
      });
      if (lease == history_.leases.end()) {
        violated(Kind::other, "the ledger has a row \"" + row.outcome + "\" with token " +
                                  std::to_string(row.token.value) + " that no claim gave out");
      } else if (&*lease != finisher() && row.outcome != "expired") {
        violated(Kind::stale_accepted,
                 "the ledger says that " + who(*lease) + " " + row.outcome + ", and its lease had expired");
      }
    }
    if (finisher() == nullptr) return;
    for (const Lease& lease : history_.leases) {
      const auto rows = std::ranges::count_if(
          findings_.ledger, [&](const auto& row) { return row.lease_id == lease.lease_id; });
      if (rows != 1)
        violated(Kind::other, "the attempt of " + who(lease) + " has " + std::to_string(rows) +
                                  " rows in the ledger instead of 1");
    }
  }

  void check_live() {
    for (const auto& row : findings_.live)
      violated(Kind::other,
               "the job is still live: " + row.state + ", token " + std::to_string(row.token.value));
    verdict_.ended_succeeded =
        findings_.live.empty() && !findings_.ledger.empty() && findings_.ledger.back().state == "succeeded";
    if (findings_.live.empty() && !verdict_.ended_succeeded)
      violated(Kind::other, "the job did not end as succeeded");
  }

  /// Every late write was refused with a right reason, and the evidence says the same as the answer.
  void check_late_writes() {
    std::vector<Findings::Evidence> evidence = findings_.evidence;
    for (const LateWrite& late : history_.late_writes) {
      const std::string what = "the late " + std::string{to_string(late.verb)} + " of " + who(late.lease) +
                               ", " + std::string{to_string(late.comeback.timing)};
      if (late.reply.status == Verdict::Status::committed) {
        ++verdict_.accepted;
        violated(Kind::stale_accepted, what + ", was accepted");
        continue;
      }
      if (late.reply.status == Verdict::Status::unknown) {
        violated(Kind::other, what + ", was not refused but got an error: " + late.reply.error);
        continue;
      }
      if (!is_a_right_answer(late)) {
        violated(Kind::other, what + ", was refused with a wrong reason: " +
                                  std::string{to_string(late.reply.stale.reason)});
        continue;
      }
      const auto row = std::ranges::find_if(evidence, [&](const auto& e) { return is_evidence_of(e, late); });
      if (row == evidence.end()) {
        violated(Kind::other, what + ", left no evidence that says what it was told");
        continue;
      }
      evidence.erase(row);
      ++verdict_.blocked;
    }
    for (const auto& row : evidence) {
      violated(Kind::other, "there is evidence of a " + row.verb + " by " + row.worker + " (token " +
                                std::to_string(row.token.value) + ") that nobody tried, or was not told of");
    }
  }

  [[nodiscard]] bool is_a_right_answer(const LateWrite& late) const {
    const Stale& stale = late.reply.stale;
    return std::ranges::any_of(expected_refusals(late.comeback), [&](const ExpectedRefusal& refusal) {
      const auto holder =
          refusal.holder ? std::optional{history_.leases.at(*refusal.holder).worker} : std::nullopt;
      return stale.reason == refusal.reason && stale.current_worker == holder &&
             stale.current_token == history_.leases.at(refusal.newest).token;
    });
  }

  [[nodiscard]] static bool is_evidence_of(const Findings::Evidence& row, const LateWrite& late) {
    const Stale& stale = late.reply.stale;
    return row.verb == name_in_evidence(late.verb) && row.token == late.lease.token &&
           row.lease_id == late.lease.lease_id && row.worker == late.lease.worker &&
           row.reason == to_string(stale.reason) && row.current_token == stale.current_token &&
           row.current_worker == stale.current_worker &&
           (!stale.current_state || row.current_state == to_string(*stale.current_state));
  }

  /// Effects are those that were begun under good leases, and none is recorded.
  void check_effects() {
    for (const auto& row : findings_.effects) {
      const bool begun_in_time = std::ranges::any_of(history_.effects, [&](const BegunEffect& effect) {
        return effect.key == row.key && effect.lease.lease_id == row.lease_id;
      });
      if (!begun_in_time) violated(Kind::stale_accepted, "the effect \"" + row.key + "\" was begun too late");
      if (row.recorded)
        violated(Kind::stale_accepted, "the effect \"" + row.key + "\" was recorded too late");
    }
    if (findings_.effects.size() < history_.effects.size())
      violated(Kind::other, "an effect that was begun in time is missing");
  }

  /// What was written in a fenced transaction is there if, and only if, the finisher ended the job with it.
  void check_writes() {
    const bool finished_so = finisher() != nullptr && history_.schedule.finish == Finish::transact &&
                             history_.finish->status == Verdict::Status::committed;
    const auto by_finisher =
        finisher() == nullptr ? 0 : std::ranges::count(findings_.writes, finisher()->worker);
    if (by_finisher != (finished_so ? 1 : 0))
      violated(Kind::other, "the finisher's own write is there " + std::to_string(by_finisher) + " times");
    for (const std::string& worker : findings_.writes) {
      if (finisher() == nullptr || worker != finisher()->worker)
        violated(Kind::stale_accepted, "a write of " + worker + " in a fenced transaction was kept");
    }
  }

  const RaceHistory& history_;
  const Findings& findings_;
  RaceVerdict verdict_;
};

}  // namespace

RaceVerdict check(const RaceHistory& history, const Findings& findings) {
  return Check{history, findings}.run();
}

}  // namespace faultline::drills
