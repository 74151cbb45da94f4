// What a handler returns or throws is what becomes of the job.

#include <atomic>
#include <stdexcept>

#include <gmock/gmock.h>

#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OutcomesTest : public WorkerTest {
 protected:
  /// Runs one job with this handler until it is settled once, and drains.
  template <class F>
  JobId run_once(const F& handler, NewJob job = {}) {
    job.kind = "test";
    const JobId id = enqueue(std::move(job));
    Worker worker{options()};
    worker.handle("test", handler);
    must(worker.start());
    EXPECT_TRUE(eventually([&] { return worker.stats().settled == 1; }));
    worker.drain();
    EXPECT_EQ(worker.stats().stale, 0U);
    EXPECT_EQ(worker.stats().released, 0U);
    return id;
  }
};

TEST_F(OutcomesTest, a_handler_that_returns_nothing_succeeds_without_a_result) {
  const JobId id = run_once([](Context&) {});

  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(id).result, std::nullopt);
}

TEST_F(OutcomesTest, returned_text_is_the_result_whatever_its_bytes) {
  const std::string bytes{"\0\xff\n\"", 4};

  const JobId id = run_once([&](Context&) { return bytes; });

  EXPECT_EQ(job(id).state, JobState::succeeded);
  EXPECT_EQ(job(id).result, bytes);
}

TEST_F(OutcomesTest, a_returned_outcome_is_taken_as_it_is) {
  const JobId id = run_once([](Context&) { return Outcome::success("by hand"); });

  EXPECT_EQ(job(id).result, "by hand");
}

TEST_F(OutcomesTest, a_handler_that_releases_gives_the_attempt_back) {
  std::atomic<int> runs{0};
  const JobId id = enqueue();
  Worker worker{options()};
  worker.handle("test", [&](Context&) { return ++runs == 1 ? Outcome::release() : Outcome::success(); });
  must(worker.start());

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(outcomes(id), ElementsAre("released", "succeeded"));
  EXPECT_EQ(job(id).attempt, 1);
}

TEST_F(OutcomesTest, an_exception_fails_the_attempt_with_its_text) {
  const JobId id = run_once([](Context&) { throw std::runtime_error("the disk is on fire"); });

  EXPECT_EQ(job(id).state, JobState::scheduled);
  EXPECT_EQ(job(id).last_error, "the disk is on fire");
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_THAT(outcomes(id), ElementsAre("failed"));
  EXPECT_EQ(events_.count("execution_failed"), 1U);
}

TEST_F(OutcomesTest, something_thrown_that_is_no_exception_fails_the_attempt) {
  const JobId id = run_once([](Context&) { throw 42; });  // NOLINT: somebody may

  EXPECT_EQ(job(id).state, JobState::scheduled);
  EXPECT_THAT(job(id).last_error.value(), HasSubstr("no std::exception"));
}

TEST_F(OutcomesTest, a_text_that_no_column_holds_is_stored_as_far_as_it_can_be) {
  const JobId binary = run_once([](Context&) { throw std::runtime_error("bad \xff byte"); });
  EXPECT_THAT(job(binary).last_error.value(), HasSubstr("bad "));

  const JobId huge = run_once([](Context&) { throw std::runtime_error(std::string(3'000'000, 'x')); });
  EXPECT_THAT(job(huge).last_error.value(), HasSubstr("xxx"));
}

TEST_F(OutcomesTest, failures_use_up_the_attempts_and_then_the_job_is_dead) {
  std::atomic<int> runs{0};
  const JobId id = enqueue({.attempts_max = 3, .backoff_base = ms{0}});
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    ++runs;
    throw std::runtime_error("attempt " + std::to_string(ctx.attempt()));
  });
  must(worker.start());

  ASSERT_TRUE(reaches(id, JobState::dead));
  EXPECT_EQ(runs, 3);
  EXPECT_EQ(job(id).attempt, 3);
  EXPECT_EQ(job(id).last_error, "attempt 3");
  EXPECT_THAT(outcomes(id), ElementsAre("failed", "failed", "failed"));
}

TEST_F(OutcomesTest, fail_waits_as_long_as_it_says_instead_of_the_backoff) {
  for (const bool thrown : {false, true}) {
    const JobId id = run_once([&](Context&) -> Outcome {
      if (thrown) throw Fail{.error = "busy", .retry_in = std::chrono::hours{5}};
      return Fail{.error = "busy", .retry_in = std::chrono::hours{5}};
    });
    EXPECT_EQ(job(id).state, JobState::scheduled);
    EXPECT_EQ(job(id).last_error, "busy");
    EXPECT_EQ(job(id).attempt, 1);
    EXPECT_GT(job(id).run_at - job(id).created_at, std::chrono::hours{4});
  }
}

TEST_F(OutcomesTest, snooze_comes_later_and_does_not_count) {
  for (const bool thrown : {false, true}) {
    const JobId id = run_once([&](Context&) -> Outcome {
      if (thrown) throw Snooze{std::chrono::hours{5}};
      return Snooze{std::chrono::hours{5}};
    });
    EXPECT_EQ(job(id).state, JobState::scheduled);
    EXPECT_EQ(job(id).attempt, 0);
    EXPECT_GT(job(id).run_at - job(id).created_at, std::chrono::hours{4});
    EXPECT_THAT(outcomes(id), ElementsAre("snoozed"));
  }
}

TEST_F(OutcomesTest, a_job_may_snooze_more_often_than_it_has_attempts) {
  std::atomic<int> runs{0};
  const JobId id = enqueue({.attempts_max = 1});
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) -> Outcome {
    EXPECT_EQ(ctx.attempt(), 1);
    if (++runs < 6) return Snooze{ms{1}};
    return Outcome::success();
  });
  must(worker.start());

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(runs, 6);
}

TEST_F(OutcomesTest, cancel_ends_the_job_with_the_reason) {
  for (const bool thrown : {false, true}) {
    const JobId id = run_once([&](Context&) -> Outcome {
      if (thrown) throw Cancel{"the account is closed"};
      return Cancel{"the account is closed"};
    });
    EXPECT_EQ(job(id).state, JobState::cancelled);
    EXPECT_EQ(job(id).last_error, "the account is closed");
  }
}

TEST_F(OutcomesTest, bury_goes_to_the_dead_letters_at_once) {
  for (const bool thrown : {false, true}) {
    const JobId id = run_once([&](Context&) -> Outcome {
      if (thrown) throw Bury{"the address is malformed"};
      return Bury{"the address is malformed"};
    });
    EXPECT_EQ(job(id).state, JobState::dead);
    EXPECT_EQ(job(id).attempt, 1);
    EXPECT_EQ(job(id).last_error, "the address is malformed");
  }
  EXPECT_EQ(events_.count("job_buried"), 2U);
}

TEST_F(OutcomesTest, a_kind_without_a_handler_fails_and_says_so) {
  const JobId id = enqueue({.kind = "unheard-of"});
  Worker worker{options("lonely")};
  worker.handle("test", [](Context&) {});
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return worker.stats().settled == 1; }));
  EXPECT_EQ(job(id).state, JobState::scheduled);
  EXPECT_EQ(job(id).last_error, "worker lonely has no handler for the kind \"unheard-of\"");
  EXPECT_EQ(events_.count("no_handler"), 1U);
}

TEST_F(OutcomesTest, a_handler_of_any_kind_has_the_kinds_that_no_other_has) {
  const JobId own = enqueue({.kind = "test"});
  const JobId other = enqueue({.kind = "unheard-of"});
  Worker worker{options()};
  worker.handle_any([](Context& ctx) { return "any " + ctx.job().kind; });
  worker.handle("test", [](Context&) { return "own"; });
  must(worker.start());

  ASSERT_TRUE(reaches(own, JobState::succeeded) && reaches(other, JobState::succeeded));
  EXPECT_EQ(job(own).result, "own");
  EXPECT_EQ(job(other).result, "any unheard-of");
}

TEST_F(OutcomesTest, an_outcome_that_cannot_be_stored_is_a_failure_and_disturbs_no_other) {
  const JobId too_large = enqueue({.kind = "large"});
  const JobId bad_delay = enqueue({.kind = "delay"});
  const JobId bad_snooze = enqueue({.kind = "snooze"});
  const JobId two_minds = enqueue({.kind = "two minds"});
  constexpr std::size_t kOthers = 200;
  enqueue_many(kOthers);
  Worker worker{options()};
  worker.handle("large", [](Context&) { return std::string(2'000'000, 'x'); })
      .handle("delay", [](Context&) { return Fail{.error = "e", .retry_in = ms{-5}}; })
      .handle("snooze", [](Context&) { return Snooze{std::chrono::hours{24 * 365 * 100}}; })
      .handle("two minds",
              [](Context&) { return Outcome{.kind = Outcome::Kind::failed, .result = "and yet a result"}; })
      .handle("test", [](Context&) { return "fine"; });
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return worker.stats().settled >= kOthers + 4; }));
  worker.drain();
  for (const JobId id : {too_large, bad_delay, bad_snooze, two_minds}) {
    EXPECT_EQ(job(id).state, JobState::scheduled);
    EXPECT_THAT(job(id).last_error.value(), HasSubstr("cannot be stored"));
  }
  EXPECT_EQ(successes(), kOthers);
  EXPECT_EQ(events_.count("settlement_refused"), 0U);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(OutcomesTest, a_handler_that_throws_stopped_by_itself_has_failed) {
  const JobId id = run_once([](Context&) { throw Stopped{StopReason::draining}; });

  EXPECT_THAT(outcomes(id), ElementsAre("failed"));
  EXPECT_THAT(job(id).last_error.value(), HasSubstr("stopped by itself"));
}

TEST_F(OutcomesTest, outcomes_of_all_kinds_together_are_told_apart) {
  constexpr int kEach = 100;
  const std::vector<std::string> kinds{"succeed", "fail", "bury", "cancel", "snooze"};
  std::vector<NewJob> jobs;
  for (int i = 0; i < kEach; ++i) {
    for (const std::string& kind : kinds) jobs.push_back({.kind = kind});
  }
  must(store_.enqueue(jobs));
  Worker worker{options()};
  worker.handle("succeed", [](Context&) {})
      .handle("fail", [](Context&) { return Fail{.error = "f", .retry_in = std::chrono::hours{1}}; })
      .handle("bury", [](Context&) { return Bury{"b"}; })
      .handle("cancel", [](Context&) { return Cancel{"c"}; })
      .handle("snooze", [](Context&) { return Snooze{std::chrono::hours{1}}; });
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return worker.stats().settled == kEach * kinds.size(); }));
  const QueueCounts now = counts();
  EXPECT_EQ(now.succeeded, kEach);
  EXPECT_EQ(now.dead, kEach);
  EXPECT_EQ(now.cancelled, kEach);
  EXPECT_EQ(now.scheduled, kEach) << "snoozed";
  EXPECT_EQ(now.retrying, kEach) << "failed";
  EXPECT_EQ(evidence(), 0);
}

}  // namespace
}  // namespace faultline::testing
