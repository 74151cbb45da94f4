// Who gets how much: between workers, between queues, and between now and later.

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "worker/fixture.h"

namespace faultline::testing {
namespace {

class SharingTest : public WorkerTest {
 protected:
  [[nodiscard]] WorkerOptions with_slots(std::string name, std::size_t slots) {
    WorkerOptions made = options(std::move(name));
    made.slots = slots;
    made.log_from = Severity::info;
    return made;
  }
  std::int64_t held_by(const std::string& worker) {
    return number("SELECT count(*) FROM faultline.jobs WHERE state = 'running' AND worker = '" + worker +
                  "'");
  }
};

/// Counts how many are inside, and the most there ever were. Thread-safe.
class Crowd {
 public:
  class Member {
   public:
    explicit Member(Crowd& crowd) : crowd_(crowd) {
      const int now = ++crowd_.inside_;
      int most = crowd_.most_;
      while (now > most && !crowd_.most_.compare_exchange_weak(most, now)) {
      }
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    ~Member() { --crowd_.inside_; }

   private:
    Crowd& crowd_;
  };
  [[nodiscard]] int most() const { return most_; }

 private:
  std::atomic<int> inside_{0};
  std::atomic<int> most_{0};
};

TEST_F(SharingTest, of_two_workers_with_slow_jobs_none_starves_and_none_hoards) {
  constexpr int kJobs = 60;
  constexpr std::size_t kSlots = 2;
  std::atomic<int> done_by_a{0};
  std::atomic<int> done_by_b{0};
  Worker a{with_slots("a", kSlots)};
  a.handle("test", [&](Context&) {
    std::this_thread::sleep_for(ms{150});
    ++done_by_a;
  });
  Worker b{with_slots("b", kSlots)};
  b.handle("test", [&](Context&) {
    std::this_thread::sleep_for(ms{150});
    ++done_by_b;
  });
  must(a.start());
  must(b.start());
  enqueue_many(kJobs);

  std::size_t most_waiting = 0;
  ASSERT_TRUE(eventually([&] {
    most_waiting = std::max({most_waiting, a.stats().waiting, b.stats().waiting});
    return done_by_a + done_by_b == kJobs;
  }));
  EXPECT_LE(most_waiting, kSlots);
  EXPECT_GE(done_by_a, kJobs / 4);
  EXPECT_GE(done_by_b, kJobs / 4);
}

TEST_F(SharingTest, a_worker_that_joins_later_gets_its_part) {
  enqueue_many(44);
  std::atomic<int> done_by_b{0};
  std::atomic<int> done{0};
  Gate b_is_there;
  Worker a{with_slots("a", 2)};
  a.handle("test", [&](Context&) {
    if (done >= 4) b_is_there.pass();
    std::this_thread::sleep_for(ms{100});
    ++done;
  });
  must(a.start());
  ASSERT_TRUE(b_is_there.reached_by(2));
  Worker b{with_slots("b", 2)};
  b.handle("test", [&](Context&) {
    std::this_thread::sleep_for(ms{100});
    ++done_by_b;
    ++done;
  });
  must(b.start());
  b_is_there.open();

  ASSERT_TRUE(eventually([&] { return done == 44; }));
  EXPECT_GE(done_by_b, 8);
}

TEST_F(SharingTest, short_jobs_are_claimed_in_far_fewer_claims_than_jobs) {
  constexpr int kJobs = 10'000;
  enqueue_many(kJobs);
  Worker worker{with_slots("w", 4)};
  worker.handle("test", [](Context&) {});
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return successes() == kJobs; }));
  const std::int64_t claims = number("SELECT count(DISTINCT lease_id) FROM faultline.ledger");
  EXPECT_LT(claims, kJobs / 20);
  EXPECT_GE(claims, kJobs / 1'000);
}

TEST_F(SharingTest, a_queue_that_turns_slow_gives_back_what_was_claimed_ahead) {
  constexpr std::size_t kShort = 3'000;
  constexpr std::size_t kLong = 200;
  Gate gate;
  std::vector<NewJob> jobs(kShort, NewJob{.kind = "short"});
  jobs.resize(kShort + kLong, NewJob{.kind = "long", .priority = 6});
  must(store_.enqueue(jobs));
  Worker hoarder{with_slots("hoarder", 2)};
  hoarder.handle("short", [](Context&) {}).handle("long", [&](Context&) { gate.pass(); });
  must(hoarder.start());
  ASSERT_TRUE(gate.reached_by(2));
  ASSERT_GT(held_by("hoarder"), 2) << "nothing was claimed ahead";

  Worker other{with_slots("other", 2)};
  other.handle("long", [](Context&) {}).handle("short", [](Context&) {});
  must(other.start());

  EXPECT_TRUE(eventually([&] { return successes() == kShort + kLong - 2; }));
  EXPECT_EQ(held_by("hoarder"), 2);
  EXPECT_GE(events_.count("jobs_released"), 1U);
  gate.open();
  EXPECT_TRUE(eventually([&] { return successes() == kShort + kLong; }));
  EXPECT_EQ(evidence(), 0);
}

TEST_F(SharingTest, no_outcome_waits_for_the_handler_of_another_job) {
  // A slot takes several short jobs at a time, and there is one among them that is not short.
  constexpr std::size_t kShort = 6'000;
  std::vector<NewJob> jobs(kShort, NewJob{.kind = "short"});
  jobs.push_back({.kind = "long", .priority = 6});
  must(store_.enqueue(jobs));
  Gate gate;
  Worker worker{with_slots("w", 2)};
  worker.handle("short", [](Context&) {}).handle("long", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(1));

  EXPECT_TRUE(eventually([&] { return successes() == kShort; }));
  gate.open();
  EXPECT_TRUE(eventually([&] { return successes() == kShort + 1; }));
}

TEST_F(SharingTest, no_job_waits_for_a_slow_one_while_another_slot_is_idle) {
  // The slow ones come in the middle of many short ones, which slots take in handfuls.
  constexpr std::size_t kShort = 3'000;
  std::vector<NewJob> jobs(kShort, NewJob{.kind = "short"});
  for (std::size_t slow = 0; slow < 3; ++slow) {
    jobs.push_back({.kind = "long"});
    jobs.insert(jobs.end(), kShort, NewJob{.kind = "short"});
  }
  must(store_.enqueue(jobs));
  Gate gate;
  Worker worker{with_slots("w", 4)};
  worker.handle("short", [](Context&) {}).handle("long", [&](Context&) { gate.pass(); });
  must(worker.start());

  EXPECT_TRUE(eventually([&] { return successes() == 4 * kShort; }));
  gate.open();
  EXPECT_TRUE(eventually([&] { return successes() == 4 * kShort + 3; }));

  // Nothing had to be given back and claimed again.
  EXPECT_EQ(events_.count("jobs_released"), 0U);
}

/// Two queues with a backlog, and nothing claimed ahead.
class WeightedSharingTest : public SharingTest {
 protected:
  static constexpr std::size_t kBacklog = 60;

  WeightedSharingTest() {
    for (const char* queue : {"heavy", "light"}) {
      must(store_.set_queue(queue, {}));
      enqueue_many(kBacklog, {.queue = queue});
    }
  }
  [[nodiscard]] WorkerOptions weighted(std::size_t slots, unsigned heavy) {
    WorkerOptions made = with_slots("w", slots);
    made.queues = {{.queue = "heavy", .weight = heavy}, {.queue = "light", .weight = 1}};
    made.prefetch_max = 0;
    return made;
  }
};

TEST_F(WeightedSharingTest, slots_are_shared_by_the_weights_of_queues) {
  struct Queue {
    Crowd crowd;
    std::atomic<std::size_t> begun{0};
  };
  Queue heavy;
  Queue light;
  Gate all_slots;
  Worker worker{weighted(4, 3)};
  worker.handle("test", [&](Context& ctx) {
    Queue& queue = ctx.job().queue == "heavy" ? heavy : light;
    ++queue.begun;
    // When a queue is dry the other one may have all slots.
    if (std::max(heavy.begun.load(), light.begun.load()) > kBacklog * 2 / 3) return;
    const Crowd::Member member{queue.crowd};
    all_slots.pass();
  });
  must(worker.start());
  ASSERT_TRUE(all_slots.reached_by(4));
  EXPECT_EQ(heavy.crowd.most(), 3);
  EXPECT_EQ(light.crowd.most(), 1);
  all_slots.open();

  ASSERT_TRUE(eventually([&] { return successes() == 2 * kBacklog; }));
  EXPECT_EQ(heavy.crowd.most(), 3);
  EXPECT_EQ(light.crowd.most(), 1);
}

TEST_F(WeightedSharingTest, one_slot_is_given_to_queues_in_turn_by_their_weights) {
  std::mutex mutex;
  std::string order;  // guarded by mutex
  Worker worker{weighted(1, 2)};
  worker.handle("test", [&](Context& ctx) {
    const std::lock_guard lock{mutex};
    order += ctx.job().queue.front();
  });
  must(worker.start());

  ASSERT_TRUE(eventually([&] { return successes() == 2 * kBacklog; }));
  std::string expected = "h";
  while (expected.size() < kBacklog) expected += "lhh";
  const std::lock_guard lock{mutex};
  EXPECT_EQ(order.substr(0, expected.size()), expected);
}

TEST_F(SharingTest, a_queues_concurrency_is_never_exceeded_and_others_use_the_rest) {
  must(store_.set_queue("narrow", {}));
  must(store_.set_queue("wide", {}));
  Crowd narrow;
  Crowd wide;
  Gate all_slots;
  WorkerOptions shared = with_slots("w", 6);
  shared.queues = {{.queue = "narrow", .concurrency = 2}, {.queue = "wide"}};
  Worker worker{shared};
  const auto work = [&](Crowd& crowd) {
    const Crowd::Member member{crowd};
    all_slots.pass();
    std::this_thread::sleep_for(ms{2});
  };
  worker.handle("narrow", [&](Context&) { work(narrow); }).handle("wide", [&](Context&) { work(wide); });
  enqueue_many(300, {.queue = "narrow", .kind = "narrow"});
  enqueue_many(600, {.queue = "wide", .kind = "wide"});
  must(worker.start());
  ASSERT_TRUE(all_slots.reached_by(6));
  all_slots.open();

  ASSERT_TRUE(eventually([&] { return successes() == 900; }));
  EXPECT_LE(narrow.most(), 2);
  EXPECT_GE(wide.most(), 4);
  EXPECT_LE(wide.most(), 6);
}

TEST_F(SharingTest, a_full_queue_does_not_block_another) {
  must(store_.set_queue("stuck", {}));
  Gate gate;
  WorkerOptions shared = with_slots("w", 4);
  shared.queues = {{.queue = "stuck", .concurrency = 2}, {.queue = "default"}};
  Worker worker{shared};
  worker.handle("stuck", [&](Context&) { gate.pass(); }).handle("test", [](Context&) {});
  enqueue_many(10, {.queue = "stuck", .kind = "stuck"});
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(2));

  enqueue_many(100);

  EXPECT_TRUE(eventually([&] { return successes() == 100; }));
  EXPECT_EQ(gate.arrived(), 2U);
  gate.open();
}

TEST_F(SharingTest, a_paused_queue_is_not_worked_until_it_is_resumed) {
  must(store_.set_queue("other", {}));
  must(store_.pause("default"));
  const JobId paused = enqueue();
  WorkerOptions both = with_slots("w", 2);
  both.queues = {{.queue = "default"}, {.queue = "other"}};
  both.poll_max = std::chrono::hours{1};
  Worker worker{both};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(reaches(enqueue({.queue = "other"}), JobState::succeeded));
  EXPECT_EQ(job(paused).state, JobState::available);

  must(store_.resume("default"));

  EXPECT_TRUE(reaches(paused, JobState::succeeded));
}

TEST_F(SharingTest, a_pause_amid_the_work_lets_running_jobs_finish_and_starts_no_more) {
  enqueue_many(200);
  Gate gate;
  Worker worker{with_slots("w", 2)};
  worker.handle("test", [&](Context&) { gate.pass(); });
  must(worker.start());
  ASSERT_TRUE(gate.reached_by(2));
  must(store_.pause("default"));
  gate.open();

  ASSERT_TRUE(eventually([&] { return counts().running == 0 && worker.stats().running == 0; }));
  EXPECT_LE(successes(), 4);
  must(store_.resume("default"));
  EXPECT_TRUE(eventually([&] { return successes() == 200; }));
}

TEST_F(SharingTest, the_cap_of_a_queue_holds_over_all_workers) {
  must(store_.set_queue("default", {.running_max = 3}));
  constexpr int kJobs = 60;
  enqueue_many(kJobs);
  Crowd crowd;
  const auto work = [&](Context&) {
    const Crowd::Member member{crowd};
    std::this_thread::sleep_for(ms{5});
  };
  Worker a{with_slots("a", 4)};
  Worker b{with_slots("b", 4)};
  a.handle("test", work);
  b.handle("test", work);
  must(a.start());
  must(b.start());

  ASSERT_TRUE(eventually([&] { return successes() == kJobs; }));
  EXPECT_LE(crowd.most(), 3);
}

}  // namespace
}  // namespace faultline::testing
