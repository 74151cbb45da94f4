// What a handler knows and can do.

#include <atomic>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

class ContextTest : public WorkerTest {
 protected:
  /// A worker with one slot, so that the job it runs can be taken over.
  [[nodiscard]] WorkerOptions one_slot() {
    WorkerOptions made = options();
    made.slots = 1;
    return made;
  }
  /// Runs one job with this handler to its success.
  template <class F>
  JobId succeed(const F& handler, NewJob job = {}) {
    job.kind = "test";
    const JobId id = enqueue(std::move(job));
    Worker worker{options()};
    worker.handle("test", handler);
    must(worker.start());
    EXPECT_TRUE(reaches(id, JobState::succeeded)) << this->job(id).last_error.value_or("");
    return id;
  }
};

TEST_F(ContextTest, says_which_job_this_is) {
  const std::string bytes{"\0\x01\xff raw", 7};
  std::atomic<bool> right{false};
  const JobId id = succeed(
      [&](Context& ctx) {
        right = ctx.payload() == bytes && ctx.attempt() == 1 && ctx.token() == FenceToken{1} &&
                ctx.job().queue == "default" && ctx.job().kind == "test" && ctx.job().priority == 3 &&
                ctx.job().tags == std::vector<std::string>{"a", "b"} &&
                ctx.job().encoding == Encoding::bytes && ctx.stop_reason() == StopReason::none &&
                !ctx.stop_token().stop_requested() && ctx.deadline() > std::chrono::steady_clock::now() &&
                ctx.effect_id("x") == ctx.job().lease.job.to_string() + "/x";
        ctx.throw_if_stopped();
        return ctx.job().lease.job.to_string();
      },
      {.payload = bytes, .encoding = Encoding::bytes, .priority = 3, .tags = {"a", "b"}});

  EXPECT_TRUE(right);
  EXPECT_EQ(job(id).result, id.to_string());
}

TEST_F(ContextTest, a_later_attempt_has_a_higher_token) {
  const JobId id = enqueue({.backoff_base = ms{0}});
  std::mutex mutex;
  std::vector<std::int64_t> tokens;
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    const std::lock_guard lock{mutex};
    tokens.push_back(ctx.token().value);
    if (ctx.attempt() < 3) throw std::runtime_error("again");
  });
  must(worker.start());

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(tokens, ElementsAre(1, 2, 3));
}

TEST_F(ContextTest, progress_shows_while_the_handler_runs) {
  const JobId id = enqueue();
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    ctx.progress(0.25, "a quarter");
    gate.pass();
  });
  must(worker.start());

  EXPECT_TRUE(eventually([&] { return job(id).progress == 0.25; }));
  EXPECT_EQ(job(id).progress_note, "a quarter");
  gate.open();
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(ContextTest, a_hundred_thousand_reports_are_a_few_writes_and_the_last_one_counts) {
  const JobId id = enqueue();
  Gate gate;
  Worker worker{options()};
  const auto written = [&] {
    return number(
        "SELECT coalesce(sum(n_tup_upd), 0)::bigint FROM pg_stat_user_tables WHERE relname LIKE 'jobs%'");
  };
  worker.handle("test", [&](Context& ctx) {
    for (int i = 1; i <= 100'000; ++i) ctx.progress(i / 100'000.0, "step " + std::to_string(i));
    gate.pass();
  });
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return job(id).progress == 1.0; }));
  EXPECT_EQ(job(id).progress_note, "step 100000");
  gate.open();
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  worker.drain();
  EXPECT_LT(written(), 500);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(ContextTest, progress_that_is_no_fraction_is_refused_at_once) {
  succeed([](Context& ctx) {
    for (const double bad :
         {-0.01, 1.01, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
      EXPECT_THROW(ctx.progress(bad), std::invalid_argument);
    ctx.progress(0);
    ctx.progress(1);
  });
}

TEST_F(ContextTest, extend_moves_the_deadline_here_and_in_the_database) {
  const JobId id = enqueue({.lease_ttl = ms{10'000}});
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    ctx.extend(std::chrono::minutes{20});
    EXPECT_GT(ctx.deadline(), std::chrono::steady_clock::now() + std::chrono::minutes{19});
    gate.pass();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  EXPECT_GT(job(id).lease_expires_at.value(), must(store_.now()) + std::chrono::minutes{19});
  gate.open();
  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(ContextTest, an_extension_that_is_too_long_is_an_error_and_the_lease_stays) {
  succeed([](Context& ctx) {
    EXPECT_THROW(ctx.extend(std::chrono::hours{24 * 365}), StoreError);
    ctx.check_fence();
  });
}

TEST_F(ContextTest, the_fence_tells_a_handler_that_was_replaced) {
  const JobId id = enqueue();
  Gate gate;
  std::atomic<bool> lost{false};
  std::atomic<bool> stopped{false};
  Worker worker{one_slot()};
  worker.handle("test", [&](Context& ctx) {
    ctx.check_fence();
    gate.pass();
    try {
      ctx.check_fence();
    } catch (const LeaseLost& error) {
      lost = error.stale().reason == StaleReason::token_mismatch && error.stale().current_worker == "rival";
      stopped = ctx.stop_token().stop_requested() && ctx.stop_reason() == StopReason::lease_lost;
      throw;
    }
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const Lease rival = take_over(id);
  gate.open();

  ASSERT_TRUE(eventually([&] { return lost.load(); }));
  EXPECT_TRUE(eventually([&] { return worker.stats().running == 0; }));
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(settle(rival, Outcome::success("rival")).committed());
  worker.drain();
  // The handler did not catch it, and nothing more was sent.
  ASSERT_EQ(history(id).stale_writes.size(), 1U);
  EXPECT_EQ(history(id).stale_writes[0].verb, "check");
  EXPECT_EQ(events_.count("stale_write_blocked"), 1U);
}

TEST_F(ContextTest, every_fenced_call_of_a_replaced_handler_is_refused) {
  for (const std::string verb : {"extend", "commit", "once", "return"}) {
    SCOPED_TRACE(verb);
    const JobId id = enqueue({.kind = verb});
    Gate gate;
    std::atomic<bool> ran_effect{false};
    Worker worker{one_slot()};
    worker.handle(verb, [&](Context& ctx) {
      gate.pass();
      if (verb == "extend") ctx.extend(ms{1'000});
      if (verb == "commit") ctx.commit([](Transaction& tx) { tx.exec("CREATE TABLE stale_effect ()"); });
      if (verb == "once") ctx.once("effect", [&] { ran_effect = true; });
    });
    must(worker.start());
    ASSERT_TRUE(gate.reached_by(1));
    const Lease rival = take_over(id);
    gate.open();

    EXPECT_TRUE(eventually([&] { return history(id).stale_writes.size() == 1; }));
    EXPECT_TRUE(settle(rival, Outcome::success("rival")).committed());
    worker.drain();
    EXPECT_EQ(job(id).result, "rival");
    EXPECT_FALSE(ran_effect);
    EXPECT_EQ(number("SELECT count(*) FROM pg_class WHERE relname = 'stale_effect'"), 0);
    EXPECT_EQ(history(id).stale_writes.size(), 1U);
  }
}

TEST_F(ContextTest, log_lines_carry_the_jobs_fields) {
  const JobId id = succeed([](Context& ctx) {
    ctx.log("on it", {{"step", "one"}});
    ctx.log(Severity::warning, "slow today");
  });

  const std::vector<Event> lines = events_.of("handler_log");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].job, id);
  EXPECT_EQ(lines[0].token, FenceToken{1});
  EXPECT_EQ(lines[0].queue, "default");
  EXPECT_EQ(lines[0].kind, "test");
  EXPECT_EQ(lines[0].attempt, 1);
  EXPECT_EQ(lines[0].worker, "w");
  EXPECT_EQ(lines[0].severity, Severity::info);
  EXPECT_THAT(lines[0].fields, ElementsAre(Pair("message", "on it"), Pair("step", "one")));
  EXPECT_EQ(lines[1].severity, Severity::warning);
  EXPECT_THAT(lines[1].fields, Contains(Pair("message", "slow today")));
}

TEST_F(ContextTest, serves_several_threads_of_one_handler) {
  const JobId id = succeed(
      [](Context& ctx) {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
          threads.emplace_back([&ctx, i] {
            for (int j = 0; j < 20; ++j) {
              ctx.progress(j / 20.0, "thread " + std::to_string(i));
              ctx.check_fence();
              ctx.extend(ms{1'000});
              ctx.throw_if_stopped();
              ctx.once("effect " + std::to_string(j), [] { return "done"; }, run_again);
              ctx.log("round");
            }
          });
        }
      },
      {.lease_ttl = ms{10'000}});

  EXPECT_EQ(history(id).effects.size(), 20U);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(ContextTest, a_job_whose_effect_is_unknown_goes_on_when_a_person_has_said_what_became_of_it) {
  const auto run_until_it_is = [&](JobId id, JobState state) {
    Worker worker{options()};
    worker.handle("test", [](Context& ctx) {
      return ctx.once("charge", [&]() -> std::string {
        if (ctx.job().requeues < 2) throw std::runtime_error("the answer is lost");
        return "charged now";
      });
    });
    must(worker.start());
    ASSERT_TRUE(reaches(id, state)) << to_string(job(id).state);
  };
  const auto run_again = [&](JobId id) { must(store_.requeue({&id, 1}, "operator")); };
  for (const bool happened : {true, false}) {
    const JobId id = enqueue({.backoff_base = ms{0}});
    run_until_it_is(id, JobState::dead);
    EXPECT_THAT(job(id).last_error.value(), ::testing::HasSubstr("faultline jobs decide"));
    run_again(id);
    run_until_it_is(id, JobState::dead);

    EXPECT_EQ(must(store_.decide_effect({.job = id,
                                         .key = "charge",
                                         .happened = happened,
                                         .result = happened ? "receipt 7" : "",
                                         .reason = "asked the bank"},
                                        "anna")),
              DecideStatus::decided);
    run_again(id);
    run_until_it_is(id, JobState::succeeded);

    EXPECT_EQ(job(id).result, happened ? "receipt 7" : "charged now");
  }
}

/// What would be recorded as a byte, or throw once it is run, does not compile.
struct LikeJson {
  operator std::string() const { throw std::runtime_error("it is no text"); }  // NOLINT
};
static_assert(Text<std::string> && Text<std::string_view> && Text<const char*> && Text<const std::string&>);
static_assert(Text<decltype("literal")>);
static_assert(!Text<int> && !Text<char> && !Text<bool> && !Text<double> && !Text<LikeJson>);

TEST_F(ContextTest, handlers_get_no_more_connections_than_they_may_and_wait_for_one) {
  WorkerOptions narrow = options();
  narrow.slots = 8;
  narrow.handler_connections = 1;
  enqueue_many(80);
  Worker worker{narrow};
  worker.handle("test", [](Context& ctx) { ctx.check_fence(); });
  must(worker.start());

  EXPECT_TRUE(eventually([&] { return successes() == 80; }));
}

}  // namespace
}  // namespace faultline::testing
