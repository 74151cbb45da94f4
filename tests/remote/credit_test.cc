// A worker is sent what it has room for, and gives back what it cannot run.

#include <atomic>

#include <gmock/gmock.h>

#include "remote/fixture.h"

namespace faultline::testing {
namespace {

class CreditTest : public RemoteTest {
 protected:
  std::int64_t running() {
    return number("SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND queue <> ''");
  }
  LinkedOptions with_slots(std::size_t slots, std::string name) {
    LinkedOptions made = remote(server_.url(), std::move(name));
    made.slots = slots;
    return made;
  }

  LocalServer server_{database_.dsn()};
};

TEST_F(CreditTest, slow_jobs_are_left_for_others) {
  constexpr std::size_t kJobs = 6;
  (void)enqueue_many(kJobs);
  Gate gate;
  Worker first = make_worker(with_slots(2, "first"));
  Worker second = make_worker(with_slots(4, "second"));
  for (Worker* worker : {&first, &second}) worker->handle("test", [&](Context&) { gate.pass(); });
  must(first.start());
  ASSERT_TRUE(gate.reached_by(2));
  // All of the rest is there for the second one.
  must(second.start());
  ASSERT_TRUE(gate.reached_by(kJobs));
  EXPECT_EQ(first.stats().claimed, 2U);
  EXPECT_EQ(second.stats().claimed, 4U);
  gate.open();
  ASSERT_TRUE(eventually([&] { return counts().succeeded == kJobs; }));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(CreditTest, slots_that_were_promised_to_two_queues_are_not_kept_from_others) {
  must(store_.set_queue("other", {}));
  (void)enqueue_many(6);
  (void)enqueue_many(6, {.queue = "other"});
  Gate gate;
  LinkedOptions both = with_slots(2, "w");
  both.queues = {{}, {.queue = "other"}};
  Worker worker = make_worker(both);
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(2));
  // What came for a slot that the other queue has taken goes back.
  EXPECT_TRUE(eventually([&] { return running() == 2; }));
  EXPECT_EQ(gate.arrived(), 2U);
  gate.open();
  ASSERT_TRUE(eventually([&] { return counts().succeeded + counts("other").succeeded == 12; }));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(CreditTest, what_was_wanted_while_jobs_were_short_is_not_hoarded_when_they_are_long) {
  Gate gate;
  std::atomic<std::size_t> shorts{0};
  Worker worker = make_worker(with_slots(2, "w"));
  worker.handle("short", [&](Context&) { ++shorts; }).handle("test", [&](Context&) { gate.pass(); });
  (void)enqueue_many(1'000, {.kind = "short"});
  must(worker.start());
  ASSERT_TRUE(eventually([&] { return shorts == 1'000; }));
  (void)enqueue_many(100);
  ASSERT_TRUE(gate.reached_by(2));
  EXPECT_TRUE(eventually([&] { return running() == 2; }));
  gate.open();
  ASSERT_TRUE(eventually([&] { return counts().succeeded == 1'100; }));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(CreditTest, a_paused_queue_sends_nothing_until_it_is_resumed) {
  must(store_.pause("default"));
  const JobId id = enqueue();
  std::atomic<int> ran{0};
  Worker worker = make_worker(with_slots(2, "w"));
  worker.handle("test", [&](Context&) { ++ran; });
  must(worker.start());
  EXPECT_EQ(job(id).state, JobState::available);
  must(store_.resume("default"));
  EXPECT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_EQ(ran, 1);
}

TEST_F(CreditTest, leases_of_jobs_that_come_after_a_long_wait_count_from_when_they_were_claimed) {
  set_ttl(ms{2'000});
  std::atomic<bool> in_time{false};
  Worker worker = make_worker(with_slots(1, "w"));
  worker.handle("test", [&](Context& ctx) { in_time = ctx.deadline() > std::chrono::steady_clock::now(); });
  must(worker.start());
  // The worker has waited for longer than a lease lasts before there is a job.
  const auto waited = std::chrono::steady_clock::now() + ms{2'500};
  ASSERT_TRUE(eventually([&] { return std::chrono::steady_clock::now() > waited; }));
  const JobId id = enqueue();
  ASSERT_TRUE(reaches(id, JobState::succeeded));
  EXPECT_TRUE(in_time);
}

}  // namespace
}  // namespace faultline::testing
