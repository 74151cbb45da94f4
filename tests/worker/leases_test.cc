// A lease is kept as long as its handler runs, and a handler is stopped as soon as its lease may be gone.

#include <atomic>
#include <ctime>
#include <map>
#include <thread>

#include <gmock/gmock.h>

#include "pg/wire_proxy.h"
#include "support/movable_clock.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using ::testing::ElementsAre;

class LeasesTest : public WorkerTest {
 protected:
  /// Long enough for a worker that gets little of the processor to keep its leases.
  static constexpr ms kTtl{3'000};

  LeasesTest() { set_ttl(kTtl); }

  /// Without a watchdog: the test sweeps.
  [[nodiscard]] WorkerOptions quiet(std::string name = "w") {
    WorkerOptions quiet = options(std::move(name));
    quiet.watchdog = false;
    return quiet;
  }
  /// Waits until the database's time is this much later.
  [[nodiscard]] bool time_passes(ms much) {
    const DatabaseTime until = must(store_.now()) + much;
    return eventually([&] { return must(store_.now()) >= until; });
  }
  void sweep_and_claim_nothing() {
    EXPECT_TRUE(must(store_.expire_leases()).expired.empty());
    EXPECT_TRUE(must(store_.claim({.worker = "rival"})).empty());
  }
};

TEST_F(LeasesTest, heartbeats_keep_a_job_for_many_ttls_and_nobody_else_gets_it) {
  MovableClock clock{database_.dsn()};
  const JobId id = enqueue();
  Gate gate;
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    gate.pass();
    EXPECT_EQ(ctx.stop_reason(), StopReason::none);
    EXPECT_GT(ctx.deadline(), std::chrono::steady_clock::now());
    ctx.check_fence();
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(eventually([&] { return job(id).lease_expires_at == must(store_.now()) + kTtl; }));
    clock.advance(kTtl - ms{1});
    sweep_and_claim_nothing();
  }
  gate.open();

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(LeasesTest, a_claim_that_waited_for_the_database_for_longer_than_a_lease_lasts_is_not_thrown_away) {
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = quiet();
  far.database = proxy.dsn();
  far.poll_max = ms{20};
  Worker worker{far};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  const JobId first = enqueue();
  ASSERT_TRUE(reaches(first, JobState::succeeded));

  proxy.stall();
  std::vector<JobId> jobs;
  for (int i = 0; i < 3; ++i) jobs.push_back(enqueue());
  ASSERT_TRUE(time_passes(kTtl + ms{500}));
  proxy.resume();

  // Nobody sweeps: what was claimed for nobody would stay so.
  for (const JobId id : jobs) {
    EXPECT_TRUE(reaches(id, JobState::succeeded));
    EXPECT_EQ(job(id).token, FenceToken{1});
  }
  EXPECT_EQ(evidence(), 0);
}

TEST_F(LeasesTest, the_beats_of_a_long_job_leave_the_processor_alone) {
  // One claim brings both: what is left of the short one must not keep the heartbeater busy.
  enqueue({.kind = "short"});
  const JobId id = enqueue({.kind = "long"});
  Gate gate;
  Worker worker{quiet()};
  worker.handle("short", [](Context&) {}).handle("long", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  ASSERT_TRUE(eventually([&] { return worker.stats().settled == 1; }));

  const std::clock_t cpu_before = std::clock();
  const auto before = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < before + kTtl * 2 / 3) std::this_thread::sleep_for(ms{50});
  const double cpu_s = static_cast<double>(std::clock() - cpu_before) / CLOCKS_PER_SEC;
  gate.open();

  EXPECT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_LT(cpu_s, 0.4) << "of 2 s that passed, and in the second half beats were due";
}

TEST_F(LeasesTest, extending_by_little_again_and_again_does_not_lose_the_lease) {
  const JobId id = enqueue();
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    const auto until = std::chrono::steady_clock::now() + kTtl * 5 / 4;
    while (std::chrono::steady_clock::now() < until) {
      ctx.extend(ms{1});
      ctx.throw_if_stopped();
      std::this_thread::sleep_for(ms{10});
    }
  });
  must(worker.start());

  ASSERT_TRUE(sweeping_until([&] { return !outcomes(id).empty(); }));
  EXPECT_THAT(outcomes(id), ElementsAre("succeeded"));
}

TEST_F(LeasesTest, an_extended_lease_outlives_its_ttl_without_beats) {
  constexpr ms kShort{2'000};
  const JobId id = enqueue({.lease_ttl = kShort});
  Gate gate;
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = quiet();
  far.database = proxy.dsn();
  Worker worker{far};
  worker.handle("test", [&](Context& ctx) {
    ctx.extend(std::chrono::minutes{10});
    EXPECT_GT(ctx.deadline(), std::chrono::steady_clock::now() + std::chrono::minutes{9});
    gate.pass();
    EXPECT_EQ(ctx.stop_reason(), StopReason::none);
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  proxy.stall();

  ASSERT_TRUE(time_passes(kShort * 5 / 4));
  sweep_and_claim_nothing();
  proxy.resume();
  gate.open();

  EXPECT_TRUE(reaches(id, JobState::succeeded));
}

TEST_F(LeasesTest, a_worker_that_cannot_reach_the_database_stops_its_handlers_by_its_own_clock) {
  const JobId id = enqueue({.lease_ttl = ms{2'000}, .backoff_base = ms{0}});
  std::atomic<StopReason> reason{StopReason::none};
  Gate stopped;
  Gate late;
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = quiet("cut off");
  far.database = proxy.dsn();
  Worker worker{far};
  worker.handle("test", [&](Context& ctx) {
    stopped.pass();
    reason = wait_for_stop(ctx);
    EXPECT_LE(ctx.deadline(), std::chrono::steady_clock::now());
    late.pass();
    return "late";
  });
  must(worker.start());
  ASSERT_TRUE(stopped.reached_by(1));
  proxy.stall();
  stopped.open();

  // Not a word from the database can have told it.
  ASSERT_TRUE(late.reached_by(1));
  EXPECT_EQ(reason, StopReason::lease_lost);

  // Another worker gets it and is through; then the first one's network comes back.
  ASSERT_TRUE(sweeping_until([&] { return job(id).state == JobState::available; }));
  const ClaimedJob taken = must(store_.claim({.worker = "rival"})).at(0);
  EXPECT_TRUE(settle(taken.lease, Outcome::success("in time")).committed());
  proxy.resume();
  late.open();

  ASSERT_TRUE(eventually([&] { return worker.stats().stale == 1; }));
  EXPECT_EQ(job(id).result, "in time");
  EXPECT_THAT(outcomes(id), ElementsAre("expired", "succeeded"));
  const std::vector<StaleWrite> found = history(id).stale_writes;
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(std::ranges::count(found, "complete", &StaleWrite::verb), 1);
  EXPECT_EQ(found.front().worker, "cut off");
  EXPECT_EQ(events_.count("stale_write_blocked"), 1U);
}

TEST_F(LeasesTest, a_beat_that_says_lost_stops_the_handler) {
  const JobId id = enqueue();
  std::atomic<StopReason> reason{StopReason::none};
  std::atomic<bool> in_time{false};
  Gate gate;
  WorkerOptions one_slot = quiet();
  one_slot.slots = 1;
  Worker worker{one_slot};
  worker.handle("test", [&](Context& ctx) {
    gate.pass();
    const auto deadline = ctx.deadline();
    reason = wait_for_stop(ctx);
    in_time = ctx.deadline() == deadline;  // it was told, and renewed nothing
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const Lease rival = take_over(id);
  gate.open();

  ASSERT_TRUE(eventually([&] { return reason != StopReason::none; }));
  EXPECT_EQ(reason, StopReason::lease_lost);
  EXPECT_TRUE(settle(rival, Outcome::success("rival")).committed());
  worker.drain();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(job(id).result, "rival");
  EXPECT_GE(events_.count("lease_lost"), 1U);
}

TEST_F(LeasesTest, a_cancelled_running_job_is_stopped_and_ends_cancelled_whatever_the_handler_does) {
  const std::vector<std::string> hows{"stopped", "returns", "fails", "snoozes"};
  std::map<std::string, std::atomic<StopReason>> reasons;
  std::vector<JobId> ids;
  Gate gate;
  Worker worker{quiet()};
  for (const std::string& how : hows) {
    ids.push_back(enqueue({.kind = how}));
    worker.handle(how, [&gate, how, &reason = reasons[how]](Context& ctx) -> Outcome {
      gate.pass();
      reason = wait_for_stop(ctx);
      if (how == "stopped") ctx.throw_if_stopped();
      if (how == "fails") throw std::runtime_error("because I was stopped");
      if (how == "snoozes") return Snooze{ms{1}};
      return Outcome::success("anyway");
    });
  }
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(hows.size()));
  for (const JobId id : ids) EXPECT_EQ(cancel(id), CancelStatus::requested);
  gate.open();

  for (std::size_t i = 0; i < hows.size(); ++i) {
    SCOPED_TRACE(hows[i]);
    ASSERT_TRUE(reaches(ids[i], JobState::cancelled));
    EXPECT_EQ(reasons[hows[i]], StopReason::cancelled);
    EXPECT_THAT(outcomes(ids[i]), ElementsAre("cancelled"));
    EXPECT_EQ(job(ids[i]).last_error, "not wanted");
  }
  worker.drain();
  EXPECT_EQ(worker.stats().stale, 0U);
  EXPECT_EQ(evidence(), 0);
}

TEST_F(LeasesTest, a_job_that_is_done_before_its_worker_hears_of_the_cancellation_still_ends_cancelled) {
  set_ttl(std::chrono::minutes{1});  // no beat comes in time
  const JobId id = enqueue();
  Gate gate;
  Worker worker{quiet()};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  EXPECT_EQ(cancel(id), CancelStatus::requested);
  gate.open();

  ASSERT_TRUE(reaches(id, JobState::cancelled));
  EXPECT_EQ(successes(), 0);
}

TEST_F(LeasesTest, a_cancelled_job_that_waits_for_a_slot_never_runs) {
  // Short jobs first, so that the worker claims ahead; then one that blocks the only slot.
  std::atomic<int> ran{0};
  Gate gate;
  WorkerOptions one_slot = quiet();
  one_slot.slots = 1;
  // One claim after the other, so that jobs come in their order.
  one_slot.connections = 1;
  one_slot.listen = false;
  Worker worker{one_slot};
  worker.handle("short", [](Context&) {})
      .handle("block", [&](Context&) { gate.pass(); })
      .handle("waits", [&](Context&) { ++ran; });
  std::vector<NewJob> jobs(300, NewJob{.kind = "short"});
  jobs.push_back({.kind = "block", .priority = 6});
  // The beat that brings the news comes before the jobs are given back because they have waited too long.
  jobs.resize(jobs.size() + 50, NewJob{.kind = "waits", .priority = 7, .lease_ttl = ms{1'500}});
  const auto added = must(store_.enqueue(jobs));
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  const JobId blocked = added[300].job;
  const auto prefetched =
      must(store_.list({.kind = "waits", .state = JobState::running, .limit = 1'000})).jobs;
  ASSERT_TRUE(!prefetched.empty() || gave_back()) << "nothing was claimed ahead";
  const JobId id = prefetched.empty() ? added.back().job : prefetched.back().id;

  EXPECT_TRUE(cancel(id) == CancelStatus::requested || gave_back());

  ASSERT_TRUE(reaches(id, JobState::cancelled));
  EXPECT_EQ(ran, 0);
  gate.open();
  ASSERT_TRUE(reaches(blocked, JobState::succeeded));
  ASSERT_TRUE(sweeping_until([&] { return ran == 49; }));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(LeasesTest, a_handler_is_stopped_when_the_run_time_is_over_until_the_attempts_are_used_up) {
  const JobId id =
      enqueue({.attempts_max = 2, .lease_ttl = ms{2'000}, .run_max = ms{2'500}, .backoff_base = ms{0}});
  std::atomic<int> stopped{0};
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    if (wait_for_stop(ctx) == StopReason::run_max) ++stopped;
    ctx.throw_if_stopped();
  });
  must(worker.start());

  ASSERT_TRUE(sweeping_until([&] { return job(id).state == JobState::dead; }));
  // The database may end the last attempt before its handler has come to hear of it.
  EXPECT_TRUE(eventually([&] { return stopped == 2; }));
  EXPECT_THAT(outcomes(id), ElementsAre("expired", "expired"));
  worker.drain();
  EXPECT_EQ(evidence(), 0);
}

TEST_F(LeasesTest, the_result_of_a_handler_that_ran_too_long_is_refused) {
  const JobId id = enqueue({.attempts_max = 1, .run_max = ms{2'000}});
  Gate gate;
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    static_cast<void>(wait_for_stop(ctx));
    gate.pass();
    return "too late";
  });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));
  // The worker counts from the moment it asked for the job, so it stops a little before the database does.
  ASSERT_TRUE(eventually([&] { return must(store_.now()) > job(id).lease_expires_at.value(); }));
  gate.open();

  ASSERT_TRUE(eventually([&] { return worker.stats().stale == 1; }));
  ASSERT_TRUE(sweeping_until([&] { return job(id).state == JobState::dead; }));
  EXPECT_EQ(successes(), 0);
  EXPECT_EQ(history(id).stale_writes.at(0).reason, StaleReason::lease_expired);
}

TEST_F(LeasesTest, an_expired_lease_buries_an_at_most_once_job_and_holds_a_held_one) {
  const JobId once = enqueue({.run_max = ms{2'000}, .delivery = Delivery::at_most_once});
  const JobId held = enqueue({.run_max = ms{2'000}, .delivery = Delivery::hold});
  std::atomic<int> runs{0};
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    ++runs;
    static_cast<void>(wait_for_stop(ctx));
    ctx.throw_if_stopped();
  });
  must(worker.start());

  ASSERT_TRUE(
      sweeping_until([&] { return job(once).state == JobState::dead && job(held).state == JobState::held; }));
  EXPECT_EQ(runs, 2);
}

TEST_F(LeasesTest, a_failing_at_most_once_job_is_tried_again_because_its_end_is_known) {
  const JobId id = enqueue({.backoff_base = ms{0}, .delivery = Delivery::at_most_once});
  Worker worker{quiet()};
  worker.handle("test", [&](Context& ctx) {
    if (ctx.attempt() == 1) throw std::runtime_error("known to have failed");
  });
  must(worker.start());

  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_THAT(outcomes(id), ElementsAre("failed", "succeeded"));
}

}  // namespace
}  // namespace faultline::testing
