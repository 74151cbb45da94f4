// A worker that stops: nothing is lost, nothing waits longer than it must, and others go on at once.

#include <atomic>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "pg/wire_proxy.h"
#include "support/movable_clock.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DrainTest : public WorkerTest {
 protected:
  /// The queue's jobs that no worker has.
  std::int64_t available() { return counts().available; }
};

TEST_F(DrainTest, handlers_finish_in_time_and_their_outcomes_count) {
  enqueue_many(4);
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(4));

  std::jthread opener{[&] {
    static_cast<void>(eventually([&] { return events_.count("worker_draining") == 1; }));
    gate.open();
  }};
  const DrainReport report = worker.drain();

  EXPECT_EQ(report.abandoned, 0U);
  EXPECT_EQ(report.released, 0U);
  EXPECT_EQ(report.unsettled, 0U);
  EXPECT_EQ(successes(), 4);
  EXPECT_EQ(events_.count("worker_exit"), 1U);
}

TEST_F(DrainTest, a_draining_worker_claims_nothing_more) {
  const JobId first = enqueue();
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  std::jthread drain{[&] { worker.drain(); }};
  ASSERT_TRUE(eventually([&] { return events_.count("worker_draining") == 1; }));
  const JobId second = enqueue();
  gate.open();
  drain.join();

  EXPECT_EQ(job(first).state, JobState::succeeded);
  EXPECT_EQ(job(second).state, JobState::available);
}

TEST_F(DrainTest, jobs_that_wait_for_a_slot_are_released_at_once_and_not_counted) {
  // Short jobs first, so that the worker claims ahead; then one that blocks the only slot.
  std::vector<NewJob> jobs(300, NewJob{.kind = "short"});
  jobs.push_back({.kind = "block", .priority = 6});
  jobs.resize(jobs.size() + 50, NewJob{.kind = "waits", .priority = 7});
  const auto added = must(store_.enqueue(jobs));
  Gate gate;
  WorkerOptions one_slot = options();
  one_slot.slots = 1;
  // One claim after the other, so that jobs come in their order.
  one_slot.connections = 1;
  one_slot.listen = false;
  Worker worker{one_slot};
  worker.handle("short", [](Context&) {}).handle("block", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const auto waiting = must(store_.list({.kind = "waits", .state = JobState::running, .limit = 1'000})).jobs;
  ASSERT_TRUE(!waiting.empty() || gave_back()) << "nothing was claimed ahead";

  DrainReport report;
  std::jthread drain{[&] { report = worker.drain(); }};

  // The handler still runs, and others have them already.
  std::atomic<int> ran{0};
  Worker other{options("other")};
  other.handle("waits", [&](Context& ctx) {
    EXPECT_EQ(ctx.attempt(), 1);
    ++ran;
  });
  must(other.start());
  ASSERT_TRUE(eventually([&] { return ran == 50; }));
  gate.open();
  drain.join();
  EXPECT_EQ(job(added[300].job).state, JobState::succeeded);
  EXPECT_TRUE(report.released >= waiting.size() || gave_back()) << report.released;
  EXPECT_EQ(report.abandoned, 0U);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(DrainTest, a_handler_that_lets_stopped_fly_is_released_and_not_counted) {
  const JobId id = enqueue();
  std::atomic<StopReason> reason{StopReason::none};
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(gate.pass(ctx.stop_token()));
    reason = ctx.stop_reason();
    ctx.throw_if_stopped();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  const DrainReport report = worker.drain();

  EXPECT_EQ(reason, StopReason::draining);
  EXPECT_EQ(report.released, 1U);
  EXPECT_EQ(report.abandoned, 0U);
  EXPECT_EQ(job(id).state, JobState::available);
  EXPECT_EQ(job(id).attempt, 0);
  EXPECT_THAT(outcomes(id), ElementsAre("released"));
  EXPECT_EQ(worker.stats().settled, 1U);
  EXPECT_EQ(worker.stats().released, 1U) << "it was given back, and not worked";
}

TEST_F(DrainTest, a_handler_that_finishes_although_it_was_told_to_stop_counts) {
  const JobId id = enqueue();
  Gate gate;
  Worker worker{options()};
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(gate.pass(ctx.stop_token()));
    return "done";
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  EXPECT_EQ(worker.drain().released, 0U);

  EXPECT_EQ(job(id).result, "done");
}

TEST_F(DrainTest, a_handler_over_the_deadline_is_abandoned_and_all_it_does_later_is_refused) {
  const JobId id = enqueue();
  Gate gate;
  std::atomic<int> refused{0};
  WorkerOptions hasty = options("old");
  hasty.drain_max = ms{50};
  hasty.slots = 1;
  {
    Worker worker{hasty};
    worker.handle("test", [&](Context& ctx) {
      gate.pass();
      const auto refuses = [&](const auto& call) {
        try {
          call();
        } catch (const LeaseLost&) {
          ++refused;
        }
      };
      refuses([&] { ctx.check_fence(); });
      refuses([&] { ctx.extend(ms{1'000}); });
      refuses([&] { ctx.commit([](Transaction&) {}); });
      refuses([&] { ctx.once("effect", [] {}); });
      ctx.progress(0.5);
      return "late";
    });
    must(worker.start());
    ASSERT_TRUE(gate.reached_by(1));

    const DrainReport report = worker.drain();

    EXPECT_EQ(report.abandoned, 1U);
    EXPECT_EQ(report.released, 1U);
    EXPECT_EQ(report.unsettled, 0U);
    EXPECT_EQ(events_.count("handler_abandoned"), 1U);
    Worker other{options("new")};
    other.handle("test", [](Context& ctx) {
      EXPECT_EQ(ctx.attempt(), 1);
      return "new";
    });
    must(other.start());
    ASSERT_TRUE(reaches(id, JobState::succeeded));
    gate.open();
  }
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(job(id).result, "new");
  EXPECT_THAT(outcomes(id), ElementsAre("released", "succeeded"));
  EXPECT_EQ(successes(), 1);
}

TEST_F(DrainTest, an_abandoned_job_that_must_not_run_twice_is_left_to_the_end_of_its_lease) {
  MovableClock clock{database_.dsn()};
  const JobId once = enqueue({.delivery = Delivery::at_most_once});
  const JobId held = enqueue({.delivery = Delivery::hold});
  Gate gate;
  WorkerOptions hasty = options();
  hasty.drain_max = ms{0};
  hasty.watchdog = false;
  Worker worker{hasty};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(2));

  const DrainReport report = worker.drain();

  EXPECT_EQ(report.abandoned, 2U);
  EXPECT_EQ(report.released, 0U);
  EXPECT_EQ(counts().running, 2);
  clock.advance(std::chrono::minutes{1});
  must(store_.expire_leases());
  EXPECT_EQ(job(once).state, JobState::dead);
  EXPECT_EQ(job(held).state, JobState::held);
  EXPECT_EQ(history(once).attempts.size(), 1U);
  EXPECT_EQ(history(once).attempts.front().outcome, "expired");
  gate.open();
}

TEST_F(DrainTest, an_abandoned_job_that_was_cancelled_ends_cancelled) {
  const JobId id = enqueue();
  Gate gate;
  WorkerOptions hasty = options();
  hasty.drain_max = ms{0};
  Worker worker{hasty};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  EXPECT_EQ(cancel(id), CancelStatus::requested);

  const DrainReport report = worker.drain();

  EXPECT_EQ(report.abandoned, 1U);
  EXPECT_TRUE(reaches(id, JobState::cancelled));
  gate.open();
}

TEST_F(DrainTest, a_handler_that_goes_on_after_its_commit_does_not_hold_up_the_drain) {
  const JobId id = enqueue();
  Gate gate;
  WorkerOptions hasty = options();
  hasty.drain_max = ms{50};
  Worker worker{hasty};
  worker.handle("test", [&](Context& ctx) {
    ctx.commit([](Transaction&) { return "committed"; });
    gate.pass();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  const DrainReport report = worker.drain();

  EXPECT_EQ(gate.arrived(), 1U);
  EXPECT_EQ(report.unsettled, 0U);
  EXPECT_EQ(job(id).result, "committed");
  gate.open();
}

TEST_F(DrainTest, hurry_cuts_the_wait_short) {
  const JobId id = enqueue();
  Gate gate;
  WorkerOptions patient = options();
  patient.drain_max = std::chrono::hours{1};
  Worker worker{patient};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  DrainReport report;
  std::jthread drain{[&] { report = worker.drain(); }};
  ASSERT_TRUE(eventually([&] { return events_.count("worker_draining") == 1; }));

  worker.hurry();
  drain.join();

  EXPECT_EQ(report.abandoned, 1U);
  EXPECT_EQ(job(id).state, JobState::available);
  gate.open();
}

TEST_F(DrainTest, a_hurry_that_comes_before_the_drain_or_even_the_start_counts) {
  for (const bool before_start : {true, false}) {
    enqueue();
    Gate gate;
    WorkerOptions patient = options();
    patient.drain_max = std::chrono::hours{1};
    Worker worker{patient};
    worker.handle("test", [&](Context&) { gate.pass(); });
    if (before_start) worker.hurry();
    must(worker.start());
    ASSERT_TRUE(gate.reached_by(1));
    if (!before_start) worker.hurry();

    EXPECT_GE(worker.drain().abandoned, 1U);
    gate.open();
  }
}

TEST_F(DrainTest, drains_from_many_threads_are_one_and_all_get_its_report) {
  enqueue_many(4);
  Gate gate;
  WorkerOptions hasty = options();
  hasty.drain_max = ms{100};
  Worker worker{hasty};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(4));

  std::atomic<int> alike{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&] {
        const DrainReport report = worker.drain();
        if (report.released == 4 && report.abandoned == 4 && report.unsettled == 0) ++alike;
      });
    }
  }
  EXPECT_EQ(alike, 16);
  EXPECT_EQ(events_.count("worker_draining"), 1U);
  EXPECT_EQ(events_.count("worker_exit"), 1U);
  gate.open();
}

TEST_F(DrainTest, a_worker_that_is_destroyed_drains) {
  enqueue_many(2'000);
  {
    Worker worker{options()};
    worker.handle("test", [](Context&) {});
    must(worker.start());
    ASSERT_TRUE(eventually([&] { return worker.stats().settled > 0; }));
  }
  EXPECT_EQ(events_.count("worker_exit"), 1U);
  EXPECT_EQ(counts().running, 0);
  EXPECT_EQ(counts().available + counts().succeeded, 2'000);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(DrainTest, workers_that_come_and_go_lose_and_repeat_nothing) {
  constexpr int kJobs = 3'000;
  const auto ids = enqueue_many(kJobs);
  std::atomic<int> ran{0};
  const auto live = [&](int number) {
    Worker worker{options("w" + std::to_string(number))};
    worker.handle("test", [&](Context& ctx) {
      EXPECT_EQ(ctx.attempt(), 1);
      ++ran;
    });
    must(worker.start());
    const auto enough = static_cast<std::uint64_t>(100 + 50 * (number % 5));
    static_cast<void>(eventually([&] { return worker.stats().settled > enough || counts().available == 0; }));
    worker.drain();
    return worker.stats().stale;
  };
  int number = 0;
  while (counts().available > 0) {
    std::jthread other{[&, mine = number + 1] { EXPECT_EQ(live(mine), 0U); }};
    EXPECT_EQ(live(number), 0U);
    number += 2;
  }
  EXPECT_EQ(counts().succeeded, kJobs);
  EXPECT_EQ(ran, kJobs);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(DrainTest, ends_and_says_what_is_unsettled_when_the_database_is_gone) {
  enqueue_many(3);
  Gate gate;
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = options();
  far.database = proxy.dsn();
  far.drain_max = ms{100};
  far.watchdog = true;
  Worker worker{far};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(3));
  proxy.stall();
  gate.open();

  const DrainReport report = worker.drain();

  EXPECT_EQ(report.unsettled, 3U);
  EXPECT_EQ(report.abandoned, 0U);
  EXPECT_EQ(counts().running, 3);
  proxy.resume();
}

class StartTest : public WorkerTest {
 protected:
  /// Why the worker does not start.
  static Error refusal(WorkerOptions options) {
    Worker worker{std::move(options)};
    worker.handle("test", [](Context&) {});
    auto started = worker.start();
    EXPECT_FALSE(started);
    worker.drain();
    return started ? Error{} : started.error();
  }
};

TEST_F(StartTest, needs_a_handler) {
  Worker worker{options()};
  const auto started = worker.start();

  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(started.error().describe(), HasSubstr("no handlers"));
}

TEST_F(StartTest, names_an_option_that_makes_no_sense) {
  const auto with = [&](const auto& change) {
    WorkerOptions changed = options();
    change(changed);
    return refusal(changed).describe();
  };
  EXPECT_THAT(with([](WorkerOptions& o) { o.queues.clear(); }), HasSubstr("no queues"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.slots = 0; }), HasSubstr("slots"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.connections = 0; }), HasSubstr("connections"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.poll_max = ms{0}; }), HasSubstr("poll_max"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.drain_max = ms{-1}; }), HasSubstr("drain_max"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.name = std::string(500, 'x'); }), HasSubstr("worker"));
  EXPECT_THAT(with([](WorkerOptions& o) { o.queues = {{}, {}}; }), HasSubstr("named twice"));
}

TEST_F(StartTest, names_a_queue_that_is_not_there) {
  WorkerOptions misspelt = options();
  misspelt.queues = {{.queue = "defualt"}};

  const Error error = refusal(misspelt);

  EXPECT_EQ(error.code, ErrorCode::unknown_queue);
  EXPECT_THAT(error.describe(), HasSubstr("defualt"));
}

TEST_F(StartTest, refuses_a_database_without_the_schema) {
  const TestDatabase empty{Template::empty};
  WorkerOptions elsewhere = options();
  elsewhere.database = empty.dsn();

  EXPECT_EQ(refusal(elsewhere).code, ErrorCode::wrong_schema);
}

TEST_F(StartTest, says_that_a_database_cannot_be_reached) {
  WorkerOptions nowhere = options();
  nowhere.database = "host=/nonexistent dbname=none user=nobody";

  EXPECT_EQ(refusal(nowhere).code, ErrorCode::unavailable);
}

TEST_F(StartTest, may_be_tried_again_after_it_failed) {
  WorkerOptions later = options();
  later.queues = {{.queue = "later"}};
  Worker worker{later};
  worker.handle("test", [](Context&) {});
  ASSERT_FALSE(worker.start());
  must(store_.set_queue("later", {}));

  must(worker.start());

  EXPECT_TRUE(reaches(enqueue({.queue = "later"}), JobState::succeeded));
}

TEST_F(StartTest, a_worker_has_one_life) {
  Worker worker{options()};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  EXPECT_FALSE(worker.start());
  worker.drain();
  EXPECT_FALSE(worker.start());

  Worker drained_first{options()};
  drained_first.handle("test", [](Context&) {});
  EXPECT_EQ(drained_first.drain().unsettled, 0U);
  EXPECT_FALSE(drained_first.start());
}

TEST_F(StartTest, others_may_ask_and_drain_while_it_starts) {
  for (int i = 0; i < 5; ++i) {
    Worker worker{options()};
    worker.handle("test", [](Context&) {});
    std::atomic<bool> over{false};
    std::jthread asking{[&] {
      while (!over) {
        EXPECT_EQ(worker.stats().claimed, 0U);
        worker.hurry();
      }
    }};
    std::jthread draining{[&] { worker.drain(); }};
    static_cast<void>(worker.start());
    draining.join();
    over = true;
  }
}

}  // namespace
}  // namespace faultline::testing
