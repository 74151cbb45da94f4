// An effect that was begun and never recorded keeps its job from going on until a person has looked: what
// that person says is on record, and the next attempt goes by it.

#include <gmock/gmock.h>

#include "store/fixture.h"
#include "store/invariants.h"

namespace faultline::testing {
namespace {

using ::testing::IsEmpty;

class DecideEffectTest : public StoreTest {
 protected:
  DecideEffectTest() { must(store_.set_queue("default", {.backoff_base = ms{0}})); }

  Effect begin(const Lease& lease, std::string key = "charge") {
    const EffectKey item{.lease = lease, .key = std::move(key)};
    return must(store_.begin_effects({&item, 1})).at(0);
  }
  Effect record(const Lease& lease, std::string result) {
    const EffectResult item{.lease = lease, .key = "charge", .result = std::move(result)};
    return must(store_.record_effects({&item, 1})).at(0);
  }
  DecideStatus decide(EffectFinding finding, std::string_view who = "anna") {
    finding.key = "charge";
    if (finding.reason.empty()) finding.reason = "asked the bank";
    return must(store_.decide_effect(finding, who));
  }
  DecideStatus happened(JobId id, std::string result) {
    return decide({.job = id, .happened = true, .result = std::move(result), .reason = {}});
  }
  DecideStatus did_not(JobId id) { return decide({.job = id, .happened = false, .reason = {}}); }
  /// A job that was buried because nobody knows whether its effect happened.
  JobId buried() {
    enqueue();
    const Lease first = claim_one("A").lease;
    EXPECT_EQ(begin(first).status, Effect::Status::begun);
    settle(first, Outcome::bury("it is not known whether the effect happened"));
    return first.job;
  }
  /// The next attempt of a buried job.
  Lease next_attempt(JobId id, std::string worker = "B") {
    EXPECT_EQ(requeue(id), RequeueStatus::requeued);
    return claim_one(std::move(worker)).lease;
  }
};

TEST_F(DecideEffectTest, what_happened_is_not_done_again_and_its_result_is_what_was_said) {
  const JobId id = buried();
  const Lease before = next_attempt(id);
  ASSERT_EQ(begin(before).status, Effect::Status::unknown);
  settle(before, Outcome::bury("still unknown"));

  EXPECT_EQ(happened(id, "receipt 7"), DecideStatus::decided);

  const Effect found = begin(next_attempt(id));
  EXPECT_EQ(found.status, Effect::Status::recorded);
  EXPECT_EQ(found.result, "receipt 7");
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(DecideEffectTest, what_did_not_happen_is_begun_as_if_for_the_first_time) {
  const JobId id = buried();

  EXPECT_EQ(did_not(id), DecideStatus::decided);

  const Lease next = next_attempt(id);
  EXPECT_EQ(begin(next).status, Effect::Status::begun);
  EXPECT_EQ(record(next, "receipt 8").result, "receipt 8");
  EXPECT_THAT(broken_invariants(sql_), IsEmpty());
}

TEST_F(DecideEffectTest, who_said_what_when_and_why_stays_on_record) {
  const JobId id = buried();
  advance(std::chrono::hours{1});
  const DatabaseTime now = must(store_.now());

  decide({.job = id, .happened = false, .reason = "the bank has no such charge"}, "bert");
  settle(
      [&] {
        const Lease next = next_attempt(id);
        begin(next);
        return next;
      }(),
      Outcome::bury("lost again"));
  advance(std::chrono::hours{1});
  decide({.job = id, .happened = true, .result = "r", .reason = "this time it has"}, "anna");

  const std::vector<EffectDecision> decisions = history(id).decisions;
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].key, "charge");
  EXPECT_EQ(decisions[0].token, FenceToken{1});
  EXPECT_FALSE(decisions[0].happened);
  EXPECT_EQ(decisions[0].decided_by, "bert");
  EXPECT_EQ(decisions[0].decided_at, now);
  EXPECT_EQ(decisions[0].reason, "the bank has no such charge");
  EXPECT_EQ(decisions[1].token, FenceToken{3});
  EXPECT_TRUE(decisions[1].happened);
  EXPECT_EQ(decisions[1].decided_by, "anna");
}

TEST_F(DecideEffectTest, the_same_decision_sent_again_is_told_the_same_and_another_one_is_refused) {
  const JobId id = buried();
  const EffectFinding finding{
      .job = id, .happened = true, .result = "r", .reason = {}, .begun_under = FenceToken{1}};
  ASSERT_EQ(decide(finding), DecideStatus::decided);

  EXPECT_EQ(decide(finding, "bert"), DecideStatus::decided);
  EXPECT_EQ(happened(id, "another"), DecideStatus::otherwise);
  EXPECT_EQ(did_not(id), DecideStatus::otherwise);
  EXPECT_EQ(begin(next_attempt(id)).result, "r");
  EXPECT_EQ(decide(finding), DecideStatus::decided) << "also while the job runs by now";
  EXPECT_EQ(history(id).decisions.size(), 1U);
}

TEST_F(DecideEffectTest, a_decision_that_is_delivered_late_says_nothing_about_what_was_begun_since) {
  const JobId id = buried();
  const EffectFinding first{.job = id, .happened = false, .reason = {}, .begun_under = FenceToken{1}};
  const EffectFinding never_seen{
      .job = id, .happened = true, .result = "r", .reason = {}, .begun_under = FenceToken{2}};
  ASSERT_EQ(decide(first), DecideStatus::decided);
  const Lease second = next_attempt(id);
  begin(second);
  settle(second, Outcome::bury("lost again"));

  EXPECT_EQ(decide(first), DecideStatus::decided) << "it was, once";
  EXPECT_EQ(decide(never_seen), DecideStatus::changed);

  EXPECT_EQ(begin(next_attempt(id)).status, Effect::Status::unknown);
}

TEST_F(DecideEffectTest, nothing_is_decided_while_an_attempt_may_be_doing_it) {
  enqueue();
  const Lease running = claim_one("A").lease;
  begin(running);

  EXPECT_EQ(happened(running.job, "r"), DecideStatus::running);
  EXPECT_EQ(did_not(running.job), DecideStatus::running);

  EXPECT_EQ(record(running, "real").result, "real");
  EXPECT_EQ(happened(running.job, "r"), DecideStatus::recorded);
  complete(running);
  EXPECT_EQ(did_not(running.job), DecideStatus::recorded);
}

TEST_F(DecideEffectTest, what_nobody_began_and_what_was_taken_back_is_not_found) {
  const JobId id = buried();
  EXPECT_EQ(must(store_.decide_effect({.job = id, .key = "other", .reason = "r"}, "anna")),
            DecideStatus::not_found);
  EXPECT_EQ(did_not(JobId{Uuid::random()}), DecideStatus::not_found);
  enqueue();
  const Lease lease = claim_one("A").lease;
  begin(lease);
  const EffectKey item{.lease = lease, .key = "charge"};
  must(store_.forget_effects({&item, 1}));
  settle(lease, Outcome::bury("no"));

  EXPECT_EQ(happened(lease.job, "r"), DecideStatus::not_found);
}

TEST_F(DecideEffectTest, a_job_that_waits_or_has_ended_can_be_decided_about_too) {
  enqueue();
  const Lease waiting = claim_one("A").lease;
  begin(waiting);
  settle(waiting, Outcome::failure("timeout", std::chrono::hours{1}));
  EXPECT_EQ(happened(waiting.job, "r"), DecideStatus::decided);

  const JobId cancelled = buried();
  cancel(cancelled);
  EXPECT_EQ(happened(cancelled, "r"), DecideStatus::decided);
  EXPECT_EQ(begin(next_attempt(cancelled)).result, "r");
}

TEST_F(DecideEffectTest, a_decision_goes_with_its_job) {
  const JobId id = buried();
  must(store_.set_queue("default", {.retention = ms{0}}));
  did_not(id);
  complete(next_attempt(id));
  advance(std::chrono::hours{1});

  must(store_.prune());

  EXPECT_EQ(number("SELECT count(*) FROM faultline.effect_decisions"), 0);
}

TEST_F(DecideEffectTest, a_decision_without_a_reason_or_a_name_or_with_a_result_of_nothing_is_refused) {
  const JobId id = buried();
  const auto code = [&](EffectFinding finding, std::string_view who = "anna") {
    finding.job = id;
    const auto answer = store_.decide_effect(finding, who);
    return answer ? ErrorCode::internal : answer.error().code;
  };

  EXPECT_EQ(code({.key = "charge", .happened = true, .reason = ""}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.key = "charge", .happened = true, .reason = "r"}, ""), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.key = "", .happened = true, .reason = "r"}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.key = "charge", .happened = false, .result = "x", .reason = "r"}),
            ErrorCode::invalid_argument);
  EXPECT_THAT(history(id).decisions, IsEmpty());
}

}  // namespace
}  // namespace faultline::testing
