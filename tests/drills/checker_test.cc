// The checker on histories made by hand: it is quiet about a good one, and sees each way to break it.

#include "drills/checker.h"

#include <gmock/gmock.h>

namespace faultline::drills {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Kind = Violation::Kind;

/// A stalls, B reclaims and commits with a fenced transaction, A comes back and tries to complete.
class CheckerTest : public ::testing::Test {
 protected:
  CheckerTest() {
    history_.schedule = {
        .tenures = {{}, {}},
        .finish = Finish::transact,
        .comebacks = {{.worker = 0, .tenure = 1, .timing = Timing::after_commit, .verbs = {Verb::complete}}}};
    history_.job = JobId{Uuid::random()};
    history_.leases = {lease("A", 1), lease("B", 2)};
    history_.effects = {{.key = effect_key(0), .lease = a()}};
    history_.finish = Reply{};
    history_.result = "by B";
    history_.late_writes = {{.lease = a(),
                             .verb = Verb::complete,
                             .comeback = history_.schedule.comebacks.front(),
                             .reply = {.status = Verdict::Status::stale,
                                       .stale = {.reason = StaleReason::token_mismatch,
                                                 .current_token = FenceToken{2},
                                                 .current_worker = "B",
                                                 .current_state = JobState::succeeded}}}};
    findings_.ledger = {row(a(), "expired", "available"), row(b(), "succeeded", "succeeded")};
    findings_.ledger.back().result = "by B";
    findings_.evidence = {{.verb = "complete",
                           .reason = "token_mismatch",
                           .token = a().token,
                           .lease_id = a().lease_id,
                           .worker = "A",
                           .current_token = FenceToken{2},
                           .current_worker = "B",
                           .current_state = "succeeded"}};
    findings_.effects = {{.key = effect_key(0), .lease_id = a().lease_id}};
    findings_.writes = {"B"};
  }

  [[nodiscard]] Lease lease(std::string worker, std::int64_t token) const {
    return {.job = history_.job, .token = {token}, .lease_id = Uuid::random(), .worker = std::move(worker)};
  }
  static Findings::LedgerRow row(const Lease& lease, std::string outcome, std::string state) {
    return {.token = lease.token,
            .lease_id = lease.lease_id,
            .outcome = std::move(outcome),
            .state = std::move(state),
            .worker = lease.worker,
            .result = ""};
  }
  [[nodiscard]] const Lease& a() const { return history_.leases[0]; }
  [[nodiscard]] const Lease& b() const { return history_.leases[1]; }

  void expect_violation(Kind kind, const std::string& text) const {
    const RaceVerdict verdict = check(history_, findings_);
    EXPECT_THAT(verdict.violations, Contains(::testing::AllOf(Field(&Violation::kind, kind),
                                                              Field(&Violation::text, HasSubstr(text)))));
    EXPECT_EQ(verdict.accepted > 0, std::ranges::any_of(verdict.violations, [](const Violation& violation) {
                return violation.kind == Kind::stale_accepted;
              }));
  }

  RaceHistory history_;
  Findings findings_;
};

TEST_F(CheckerTest, a_good_history_is_good) {
  const RaceVerdict verdict = check(history_, findings_);

  EXPECT_THAT(verdict.violations, IsEmpty());
  EXPECT_TRUE(verdict.reclaimed);
  EXPECT_TRUE(verdict.ended_succeeded);
  EXPECT_EQ(verdict.successes, 1U);
  EXPECT_EQ(verdict.late_writes, 1U);
  EXPECT_EQ(verdict.blocked, 1U);
  EXPECT_EQ(verdict.accepted, 0U);
}

TEST_F(CheckerTest, a_late_write_that_was_told_committed_was_accepted) {
  history_.late_writes[0].reply = {};
  expect_violation(Kind::stale_accepted, "was accepted");
}

TEST_F(CheckerTest, a_success_of_the_late_worker_was_accepted_whatever_it_was_told) {
  findings_.ledger = {row(a(), "succeeded", "succeeded"), row(b(), "expired", "available")};
  expect_violation(Kind::stale_accepted, "the success in the ledger is of A");
}

TEST_F(CheckerTest, the_right_token_with_a_foreign_lease_id_is_not_the_finishers) {
  findings_.ledger.back().lease_id = Uuid::random();
  expect_violation(Kind::stale_accepted, "the success in the ledger is of B");
}

TEST_F(CheckerTest, two_successes_are_a_duplicate) {
  findings_.ledger[0].outcome = "succeeded";
  expect_violation(Kind::duplicate, "2 times");
}

TEST_F(CheckerTest, any_other_end_of_the_late_attempt_was_accepted) {
  for (const char* outcome : {"failed", "buried", "snoozed", "released", "cancelled"}) {
    findings_.ledger[0].outcome = outcome;
    expect_violation(Kind::stale_accepted, outcome);
  }
}

TEST_F(CheckerTest, no_success_is_a_violation) {
  findings_.ledger.pop_back();
  expect_violation(Kind::other, "no success");
}

TEST_F(CheckerTest, a_success_with_the_first_token_is_no_reclaim) {
  history_.leases = {b(), lease("B", 1)};
  findings_.ledger = {row(b(), "succeeded", "succeeded")};
  EXPECT_FALSE(check(history_, findings_).reclaimed);
  expect_violation(Kind::other, "not reclaimed");
}

TEST_F(CheckerTest, a_claim_that_does_not_raise_the_token_is_a_violation) {
  history_.leases[1].token = a().token;
  expect_violation(Kind::other, "did not raise the token");
}

TEST_F(CheckerTest, two_claims_with_one_lease_id_are_a_violation) {
  history_.leases[1].lease_id = a().lease_id;
  expect_violation(Kind::other, "got the lease id");
}

TEST_F(CheckerTest, a_job_that_is_still_live_is_a_violation) {
  findings_.live = {{.state = "available", .token = {2}}};
  expect_violation(Kind::other, "still live");
  EXPECT_FALSE(check(history_, findings_).ended_succeeded);
}

TEST_F(CheckerTest, a_foreign_result_is_a_violation) {
  findings_.ledger.back().result = "late, by A";
  expect_violation(Kind::other, "the ledger's result");
}

TEST_F(CheckerTest, a_ledger_row_that_no_claim_gave_out_is_a_violation) {
  findings_.ledger.push_back(row(lease("C", 3), "expired", "available"));
  expect_violation(Kind::other, "no claim gave out");
}

TEST_F(CheckerTest, a_lost_attempt_without_its_ledger_row_is_a_violation) {
  findings_.ledger.erase(findings_.ledger.begin());
  expect_violation(Kind::other, "0 rows in the ledger");
}

TEST_F(CheckerTest, a_refusal_without_evidence_is_a_violation) {
  findings_.evidence.clear();
  expect_violation(Kind::other, "left no evidence");
  EXPECT_EQ(check(history_, findings_).blocked, 0U);
}

TEST_F(CheckerTest, evidence_that_says_something_else_than_the_answer_is_a_violation) {
  const auto good = findings_.evidence[0];
  findings_.evidence[0].current_token = FenceToken{1};
  expect_violation(Kind::other, "left no evidence");
  findings_.evidence[0] = good;
  findings_.evidence[0].reason = "lease_expired";
  expect_violation(Kind::other, "left no evidence");
  findings_.evidence[0] = good;
  findings_.evidence[0].worker = "B";
  expect_violation(Kind::other, "left no evidence");
}

TEST_F(CheckerTest, a_wrong_reason_is_a_violation_even_if_the_evidence_agrees) {
  history_.late_writes[0].reply.stale.reason = StaleReason::lease_expired;
  findings_.evidence[0].reason = "lease_expired";
  expect_violation(Kind::other, "wrong reason");
}

TEST_F(CheckerTest, evidence_of_what_nobody_tried_is_a_violation) {
  findings_.evidence.push_back(findings_.evidence[0]);
  expect_violation(Kind::other, "that nobody tried");
}

TEST_F(CheckerTest, a_late_write_that_ends_in_an_error_is_a_violation) {
  history_.late_writes[0].reply.status = Verdict::Status::unknown;
  history_.late_writes[0].reply.error = "23505";
  expect_violation(Kind::other, "got an error: 23505");
}

TEST_F(CheckerTest, a_refused_commit_of_the_holder_is_a_violation) {
  history_.finish->status = Verdict::Status::stale;
  expect_violation(Kind::other, "was refused, though it had the job");
}

TEST_F(CheckerTest, effects_that_were_begun_or_recorded_too_late_were_accepted) {
  findings_.effects[0].recorded = true;
  expect_violation(Kind::stale_accepted, "recorded too late");
  findings_.effects[0].recorded = false;
  findings_.effects.push_back({.key = late_effect_key(0), .lease_id = a().lease_id});
  expect_violation(Kind::stale_accepted, "begun too late");
}

TEST_F(CheckerTest, an_effect_that_a_late_worker_forgot_is_missing) {
  findings_.effects.clear();
  expect_violation(Kind::other, "is missing");
}

TEST_F(CheckerTest, a_late_workers_own_write_must_not_be_kept) {
  findings_.writes.emplace_back("A");
  expect_violation(Kind::stale_accepted, "a write of A");
}

TEST_F(CheckerTest, the_finishers_own_write_must_be_kept_once) {
  findings_.writes.clear();
  expect_violation(Kind::other, "0 times");
  findings_.writes = {"B", "B"};
  expect_violation(Kind::other, "2 times");
}

}  // namespace
}  // namespace faultline::drills
