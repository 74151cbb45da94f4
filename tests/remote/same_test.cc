// The same handlers give the same outcomes, whether the worker has the database or a server.

#include <atomic>

#include <gmock/gmock.h>

#include "remote/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

enum class Through { database, server };

class SameTest : public RemoteTest, public ::testing::WithParamInterface<Through> {
 protected:
  LinkedOptions here() {
    if (GetParam() == Through::database) return {options()};
    server_.emplace(database_.dsn());
    return remote(server_->url());
  }
  /// Without a rival that ends leases, and quick to beat.
  LinkedOptions quiet() {
    LinkedOptions made = here();
    made.watchdog = false;
    return made;
  }

  std::optional<LocalServer> server_;
};

TEST_P(SameTest, a_success_keeps_its_result) {
  const JobId id = enqueue({.payload = R"({"n": 1})"});
  Worker worker = make_worker(here());
  worker.handle("test", [](Context& ctx) { return Outcome::success(ctx.job().payload); });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(job(id).result, R"({"n": 1})");
  EXPECT_EQ(job(id).worker, "w");
  EXPECT_THAT(outcomes(id), ElementsAre("succeeded"));
}

TEST_P(SameTest, a_handler_has_the_trace_of_its_job) {
  const std::string traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const JobId id = enqueue({.traceparent = traceparent});
  Worker worker = make_worker(here());
  worker.handle("test", [](Context& ctx) { return ctx.traceparent(); });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(job(id).result, traceparent);
}

TEST_P(SameTest, a_failure_is_tried_again) {
  const JobId id = enqueue({.attempts_max = 3, .backoff_base = ms{1}});
  Worker worker = make_worker(here());
  worker.handle("test", [](Context& ctx) {
    if (ctx.job().attempt < 3) throw std::runtime_error("not yet");
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(outcomes(id), ElementsAre("failed", "failed", "succeeded"));
  EXPECT_EQ(history(id).attempts.front().error, "not yet");
}

TEST_P(SameTest, a_snooze_gives_the_attempt_back) {
  const JobId id = enqueue({.attempts_max = 1});
  std::atomic<int> runs{0};
  Worker worker = make_worker(here());
  worker.handle("test", [&](Context&) {
    if (++runs == 1) throw Snooze{ms{1}};
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(outcomes(id), ElementsAre("snoozed", "succeeded"));
}

TEST_P(SameTest, a_burial_is_dead_at_once) {
  const JobId id = enqueue({.attempts_max = 5});
  Worker worker = make_worker(here());
  worker.handle("test", [](Context&) { throw Bury{"no use"}; });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::dead));
  EXPECT_EQ(job(id).last_error, "no use");
}

TEST_P(SameTest, a_cancelled_running_job_is_stopped_and_ends_cancelled) {
  set_ttl(ms{1'500});
  const JobId id = enqueue();
  Gate gate;
  std::atomic<StopReason> reason{StopReason::none};
  Worker worker = make_worker(quiet());
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(gate.pass(ctx.stop_token()));
    reason = ctx.stop_reason();
    ctx.throw_if_stopped();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  EXPECT_EQ(cancel(id), CancelStatus::requested);
  ASSERT_TRUE(reaches(id, JobState::cancelled));
  EXPECT_EQ(reason, StopReason::cancelled);
  EXPECT_EQ(job(id).last_error, "not wanted");
  EXPECT_EQ(evidence(), 0);
}

TEST_P(SameTest, once_is_done_once_over_attempts) {
  const JobId id = enqueue({.backoff_base = ms{1}});
  std::atomic<int> done{0};
  Worker worker = make_worker(here());
  worker.handle("test", [&](Context& ctx) {
    const std::string receipt = ctx.once("charge", [&] {
      ++done;
      return std::string{"receipt"};
    });
    if (ctx.job().attempt == 1) throw std::runtime_error("after the effect");
    return Outcome::success("\"" + receipt + "\"");
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(done, 1);
  EXPECT_EQ(job(id).result, "\"receipt\"");
}

TEST_P(SameTest, an_effect_that_may_have_happened_buries_the_job_unless_somebody_can_tell) {
  const JobId refused = enqueue({.kind = "refused", .backoff_base = ms{1}});
  const JobId found = enqueue({.kind = "found", .backoff_base = ms{1}});
  for (const ClaimedJob& claimed : must(store_.claim({.worker = "crashed", .limit = 2}))) {
    const EffectKey key{.lease = claimed.lease, .key = "charge"};
    EXPECT_EQ(must(store_.begin_effects({&key, 1})).front().status, Effect::Status::begun);
    EXPECT_TRUE(settle(claimed.lease, Outcome::failure("crashed")).committed());
  }
  Worker worker = make_worker(here());
  worker
      .handle("refused",
              [](Context& ctx) { static_cast<void>(ctx.once("charge", [] { return std::string{}; })); })
      .handle("found", [](Context& ctx) {
        const std::string receipt = ctx.once(
            "charge", [] { return std::string{"again"}; },
            [](const UnknownEffect&) { return std::optional<std::string>{"\"found\""}; });
        return Outcome::success(receipt);
      });
  must(worker.start());
  ASSERT_TRUE(reaches(refused, JobState::dead));
  ASSERT_TRUE(reaches(found, JobState::succeeded));
  EXPECT_THAT(job(refused).last_error.value_or(""), HasSubstr("may have happened"));
  EXPECT_EQ(job(found).result, "\"found\"");
}

TEST_P(SameTest, an_effect_that_was_not_done_is_forgotten) {
  const JobId id = enqueue({.backoff_base = ms{1}});
  Worker worker = make_worker(here());
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(ctx.once("charge", [&]() -> std::string {
      if (ctx.job().attempt == 1) throw NotDone{"refused by the bank"};
      return "done";
    }));
  });
  must(worker.start());
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(outcomes(id), ElementsAre("failed", "succeeded"));
}

TEST_P(SameTest, progress_is_seen_while_the_handler_runs) {
  const JobId id = enqueue();
  Gate gate;
  Worker worker = make_worker(here());
  worker.handle("test", [&](Context& ctx) {
    ctx.progress(0.5, "half");
    gate.pass();
  });
  must(worker.start());
  EXPECT_TRUE(eventually([&] { return job(id).progress == 0.5 && job(id).progress_note == "half"; }));
  gate.open();
  ASSERT_TRUE(reaches(id, JobState::succeeded));
}

TEST_P(SameTest, a_lease_can_be_extended) {
  const JobId id = enqueue();
  Gate gate;
  Worker worker = make_worker(here());
  std::atomic<bool> later{false};
  worker.handle("test", [&](Context& ctx) {
    const auto before = ctx.deadline();
    ctx.extend(std::chrono::hours{1});
    later = ctx.deadline() > before + std::chrono::minutes{30};
    gate.pass();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  EXPECT_TRUE(later);
  EXPECT_GT(
      number("SELECT extract(epoch FROM lease_expires_at - faultline.clock())::bigint FROM faultline.jobs "
             "WHERE queue <> ''"),
      1'800);
  gate.open();
  ASSERT_TRUE(reaches(id, JobState::succeeded));
}

TEST_P(SameTest, whoever_lost_the_lease_is_told_by_the_fence) {
  set_ttl(ms{60'000});
  const JobId id = enqueue();
  Gate gate;
  std::atomic<int> lost{0};
  std::atomic<int> good{0};
  LinkedOptions one = quiet();
  one.slots = 1;
  Worker worker = make_worker(one);
  worker.handle("test", [&](Context& ctx) {
    ctx.check_fence();
    ++good;
    gate.pass();
    try {
      ctx.check_fence();
    } catch (const LeaseLost&) {
      ++lost;
      throw;
    }
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const Lease rival = take_over(id);
  gate.open();
  ASSERT_TRUE(eventually([&] { return lost == 1; }));
  EXPECT_EQ(good, 1);
  EXPECT_EQ(evidence(), 1);
  EXPECT_TRUE(settle(rival, Outcome::success()).committed());
}

TEST_P(SameTest, a_handler_whose_lease_is_lost_is_stopped_by_the_next_beat) {
  set_ttl(ms{3'000});
  const JobId id = enqueue();
  Gate gate;
  std::atomic<StopReason> reason{StopReason::none};
  LinkedOptions one = quiet();
  one.slots = 1;
  Worker worker = make_worker(one);
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(gate.pass(ctx.stop_token()));
    reason = ctx.stop_reason();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const Lease rival = take_over(id);
  ASSERT_TRUE(eventually([&] { return reason == StopReason::lease_lost; }));
  // Held by the rival, whatever the worker says last.
  EXPECT_TRUE(settle(rival, Outcome::success("\"rival\"")).committed());
  worker.drain();
  EXPECT_EQ(job(id).result, "\"rival\"");
}

TEST_P(SameTest, a_drain_gives_everything_back) {
  const auto ids = enqueue_many(20);
  Gate gate;
  Worker worker = make_worker(quiet());
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(gate.pass(ctx.stop_token()));
    ctx.throw_if_stopped();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(4));
  const DrainReport report = worker.drain();
  EXPECT_EQ(report.unsettled, 0U);
  EXPECT_EQ(report.abandoned, 0U);
  EXPECT_EQ(counts().available, 20);
  EXPECT_EQ(counts().running, 0);
  EXPECT_EQ(evidence(), 0);
  for (const JobId id : ids) EXPECT_EQ(job(id).attempt, 0);
}

TEST_P(SameTest, the_fenced_transaction_needs_the_database) {
  const JobId id = enqueue({.attempts_max = 1});
  Worker worker = make_worker(here());
  worker.handle("test", [](Context& ctx) {
    ctx.commit([](Transaction&) {});
    return Outcome::success();
  });
  must(worker.start());
  if (GetParam() == Through::database) {
    EXPECT_TRUE(reaches(id, JobState::succeeded));
    return;
  }
  ASSERT_TRUE(reaches(id, JobState::dead));
  EXPECT_THAT(job(id).last_error.value_or(""), HasSubstr("needs the database"));
}

TEST_P(SameTest, many_short_jobs_of_two_queues_all_succeed_once) {
  must(store_.set_queue("other", {}));
  constexpr std::int64_t kEach = 1'500;
  (void)enqueue_many(kEach);
  (void)enqueue_many(kEach, {.queue = "other"});
  LinkedOptions both = here();
  both.queues = {{}, {.queue = "other"}};
  both.log_from = Severity::info;
  Worker worker = make_worker(both);
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_TRUE(eventually([&] { return counts().succeeded + counts("other").succeeded == 2 * kEach; }));
  worker.drain();
  EXPECT_EQ(successes(), 2 * kEach);
  EXPECT_EQ(evidence(), 0);
}

std::string name_of(const ::testing::TestParamInfo<Through>& info) {
  return info.param == Through::database ? "database" : "server";
}
INSTANTIATE_TEST_SUITE_P(BothWays, SameTest, Values(Through::database, Through::server), name_of);

}  // namespace
}  // namespace faultline::testing
