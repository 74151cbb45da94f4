// Calls that come at the same time share a transaction. Nobody notices, except by how fast it goes.

#include <atomic>
#include <latch>
#include <map>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "service/coalescer.h"
#include "service/fixture.h"
#include "service/shares.h"

namespace faultline::testing {
namespace {

class CoalescingTest : public ServiceTest {
 protected:
  /// Every write to jobs waits until it is let go.
  void block_writes() {
    wait_without_end();
    script("BEGIN; LOCK TABLE faultline.jobs IN SHARE MODE");
  }
  /// Verbs wait for a lock as long as it is held, and not for a second: on a busy machine that is soon over.
  void wait_without_end() {
    script(
        "DO $$ DECLARE verb regprocedure; BEGIN"
        " FOR verb IN SELECT oid FROM pg_proc WHERE pronamespace = 'faultline'::regnamespace"
        "     AND 'lock_timeout=1s' = ANY (proconfig) LOOP"
        "   EXECUTE format('ALTER FUNCTION %s SET lock_timeout = 0', verb);"
        " END LOOP; END $$");
  }
  void let_go() { script("COMMIT"); }
  /// Whether so many wait for a lock in the end. Seen from outside of the transaction that makes them wait,
  /// within which the same would be seen again and again.
  bool come_to_wait(std::int64_t many) {
    return eventually([&] {
      constexpr pg::Statement kWaiting{
          "",
          "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
          " AND wait_event_type = 'Lock'"};
      return must(watching_.exec(kWaiting, {}, soon())).get<std::int64_t>(0, 0) >= many;
    });
  }
  bool somebody_waits() { return come_to_wait(1); }

 private:
  pg::Connection watching_ = database_.connect();
};

TEST_F(CoalescingTest, what_waits_shares_a_transaction) {
  begin();
  enqueue_one();
  block_writes();
  std::vector<Pending<std::vector<Submission>>> calls(200);
  for (auto& call : calls) service_->enqueue(who_, {NewJob{.kind = "shared"}}, call.done());
  ASSERT_TRUE(somebody_waits());
  EXPECT_GE(service_->counters().waiting, 190);
  let_go();

  std::set<JobId> ids;
  for (auto& call : calls) ids.insert(must(call.get()).at(0).job);

  EXPECT_EQ(ids.size(), 200);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'shared'"), 200);
  // Two were under way before the rest could gather.
  EXPECT_LE(number("SELECT count(DISTINCT xmin::text) FROM faultline.jobs WHERE kind = 'shared'"), 10);
  EXPECT_EQ(service_->counters().waiting, 0);
}

TEST_F(CoalescingTest, good_bad_and_conflicting_jobs_from_many_threads_get_each_its_own_answer) {
  begin();
  constexpr int kThreads = 8;
  constexpr int kCalls = 60;
  std::latch ready{kThreads};
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::map<std::string, std::set<JobId>> created_under;  // key -> jobs that were said to be created
  std::map<std::string, std::set<JobId>> owner_of;       // key -> jobs that were said to have it
  std::set<JobId> created;
  std::atomic<std::int64_t> expected_jobs{0};
  const auto expect = [&](bool right) { wrong += right ? 0 : 1; };
  const auto work = [&](int thread) {
    std::minstd_rand random{static_cast<unsigned>(thread + 1)};
    ready.arrive_and_wait();
    for (int i = 0; i < kCalls; ++i) {
      switch (random() % 6) {
        case 0: {  // several in one call
          const auto answer = enqueue(std::vector<NewJob>(random() % 5 + 1, NewJob{.kind = "many"}));
          expect(answer.has_value());
          if (answer) expected_jobs += static_cast<std::int64_t>(answer->size());
          break;
        }
        case 1: {  // one of two is bad: none is added
          const auto answer = enqueue({NewJob{.kind = "never"}, NewJob{.kind = "never", .payload = "{"}});
          expect(!answer && answer.error().code == Code::invalid);
          break;
        }
        case 2: {  // one of two names a queue that is not there: none is added
          const auto answer = enqueue({NewJob{.kind = "never"}, NewJob{.queue = "nowhere", .kind = "never"}});
          expect(!answer && answer.error().code == Code::not_found);
          break;
        }
        default: {  // one of few keys, with one of two payloads
          const std::string key = "key " + std::to_string(random() % 20);
          const auto answer = enqueue(
              {NewJob{.kind = "keyed", .payload = std::to_string(random() % 2), .idempotency_key = key}});
          expect(answer.has_value());
          if (!answer) break;
          const std::lock_guard lock{mutex};
          owner_of[key].insert(answer->at(0).job);
          if (answer->at(0).status != Submission::Status::created) break;
          created_under[key].insert(answer->at(0).job);
          ++expected_jobs;
        }
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) threads.emplace_back(work, thread);
  }

  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(owner_of.empty());
  for (const auto& [key, owners] : owner_of) {
    EXPECT_EQ(owners.size(), 1) << key;
    EXPECT_EQ(created_under[key], owners) << key;
  }
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'never'"), 0);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), expected_jobs);
  EXPECT_EQ(counted("faultline_jobs_enqueued_total"), static_cast<std::uint64_t>(expected_jobs));
}

TEST_F(CoalescingTest, the_same_key_in_two_calls_of_one_transaction_is_one_job) {
  begin();
  enqueue_one();
  block_writes();
  std::vector<Pending<std::vector<Submission>>> calls(40);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    service_->enqueue(who_,
                      {NewJob{.kind = "keyed", .payload = i % 2 == 0 ? "1" : "2", .idempotency_key = "k"}},
                      calls[i].done());
  }
  ASSERT_TRUE(somebody_waits());
  let_go();

  std::map<Submission::Status, int> statuses;
  std::set<JobId> jobs;
  for (auto& call : calls) {
    const auto submissions = must(call.get());
    ++statuses[submissions.at(0).status];
    jobs.insert(submissions.at(0).job);
  }

  EXPECT_EQ(jobs.size(), 1);
  EXPECT_EQ(statuses[Submission::Status::created], 1);
  EXPECT_EQ(statuses[Submission::Status::existing], 19);
  EXPECT_EQ(statuses[Submission::Status::conflict], 20);
}

TEST_F(CoalescingTest, a_key_in_an_open_transaction_holds_up_only_its_own_submission) {
  service::ServiceOptions narrow = options();
  narrow.connections = 1;
  begin(std::move(narrow));
  enqueue_one();
  script("BEGIN; SELECT faultline.enqueue('default', 'held', '{}', idempotency_key => 'k')");
  std::vector<Pending<std::vector<Submission>>> plain(20);
  std::vector<Pending<std::vector<Submission>>> keyed(5);
  Pending<std::vector<Submission>> busy;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    if (i % 4 == 0)
      service_->enqueue(who_, {NewJob{.kind = "keyed", .idempotency_key = "other " + std::to_string(i)}},
                        keyed.at(i / 4).done());
    if (i == 8) service_->enqueue(who_, {NewJob{.kind = "busy", .idempotency_key = "k"}}, busy.done());
    service_->enqueue(who_, {NewJob{.kind = "plain"}}, plain[i].done());
  }

  // While the transaction is still open.
  for (auto& call : plain) EXPECT_EQ(must(call.get()).at(0).status, Submission::Status::created);
  for (auto& call : keyed) EXPECT_EQ(must(call.get()).at(0).status, Submission::Status::created);
  const auto refused = busy.get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::unavailable);
  EXPECT_TRUE(refused.error().retry_after);
  EXPECT_EQ(counted("faultline_jobs_enqueued_total"), 26);

  let_go();
  EXPECT_EQ(must(enqueue({NewJob{.kind = "held", .payload = "{}", .idempotency_key = "k"}})).at(0).status,
            Submission::Status::existing);
}

TEST_F(CoalescingTest, while_all_who_submit_with_keys_wait_the_others_do_not) {
  service::ServiceOptions narrow = options();
  narrow.connections = 1;
  narrow.call_timeout = ms{60'000};
  begin(std::move(narrow));
  enqueue_one();
  wait_without_end();
  script("BEGIN; SELECT faultline.enqueue('default', 'held', '{}', idempotency_key => 'k')");
  std::vector<Pending<std::vector<Submission>>> waiting(10);
  for (auto& call : waiting)
    service_->enqueue(who_, {NewJob{.kind = "held", .payload = "{}", .idempotency_key = "k"}}, call.done());
  // All of them in one transaction, or in as many as there are threads for it.
  ASSERT_TRUE(somebody_waits());

  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(must(enqueue({NewJob{.kind = "plain"}})).at(0).status, Submission::Status::created);

  let_go();
  for (auto& call : waiting) EXPECT_EQ(must(call.get()).at(0).status, Submission::Status::existing);
}

TEST_F(CoalescingTest, settlements_of_one_lease_that_come_together_are_judged_one_after_the_other) {
  begin();
  const std::vector<JobId> ids = enqueue_many(30);
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(30, 1);
  ASSERT_TRUE(basket.reaches(30));
  block_writes();
  // Every lease three times, beside one that is no good at all.
  const Lease foreign{.job = ids[0], .token = {99}, .lease_id = Uuid::random(), .worker = "x"};
  std::vector<std::vector<Pending<std::vector<Verdict>>>> calls(3);
  for (auto& round : calls) {
    round.resize(30);
    for (std::size_t i = 0; i < 30; ++i) {
      const Lease lease = basket.jobs().at(i).lease;
      service_->settle(who_, {{.lease = lease, .outcome = Outcome::success()}}, round[i].done());
    }
  }
  Pending<std::vector<Verdict>> bad;
  service_->settle(who_, {{.lease = foreign, .outcome = Outcome::success()}}, bad.done());
  Pending<std::vector<Verdict>> elsewhere;
  JobId other_database;
  other_database.value.bytes[14] = 0x7f;
  service_->settle(who_,
                   {{.lease = {.job = other_database, .token = {1}, .lease_id = {}, .worker = "x"},
                     .outcome = Outcome::success()}},
                   elsewhere.done());
  ASSERT_TRUE(somebody_waits());
  let_go();

  for (std::size_t i = 0; i < 30; ++i) {
    int first_time = 0;
    for (auto& round : calls) {
      const auto verdicts = must(round[i].get());
      ASSERT_EQ(verdicts.size(), 1);
      EXPECT_TRUE(verdicts[0].committed());
      if (!verdicts[0].repeated) ++first_time;
    }
    EXPECT_EQ(first_time, 1);
  }
  EXPECT_EQ(must(bad.get()).at(0).status, Verdict::Status::stale);
  const auto refused = elsewhere.get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::invalid);
  EXPECT_EQ(number("SELECT count(*) FROM faultline.ledger WHERE outcome = 'succeeded'"), 30);
  EXPECT_EQ(counted("faultline_jobs_settled_total"), 30);
}

TEST_F(CoalescingTest, heartbeats_with_different_extensions_keep_them) {
  begin();
  enqueue_many(20);
  Basket basket;
  auto consumer = consume(basket);
  consumer->grant(20, 1);
  ASSERT_TRUE(basket.reaches(20));
  block_writes();
  std::vector<Pending<std::vector<Beat>>> calls(20);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto extend = i % 2 == 0 ? std::nullopt : std::optional{ms{10'000'000}};
    service_->heartbeat(who_, {basket.jobs().at(i).lease}, extend, calls[i].done());
  }
  let_go();

  const DatabaseTime far = must(store_.now()) + ms{5'000'000};
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Beat beat = must(calls[i].get()).at(0);
    EXPECT_EQ(beat.status, Beat::Status::renewed);
    EXPECT_EQ(beat.lease_expires_at > far, i % 2 == 1) << i;
  }
}

TEST_F(CoalescingTest, what_is_over_the_limit_is_refused_at_once_and_room_comes_back) {
  service::ServiceOptions narrow = options();
  narrow.waiting_max = 10;
  begin(narrow);
  enqueue_one();
  block_writes();
  std::vector<Pending<std::vector<Submission>>> taken(10);
  for (auto& call : taken) service_->enqueue(who_, {NewJob{.kind = "taken"}}, call.done());

  // Answered while the database answers nothing at all.
  const auto refused = enqueue({NewJob{.kind = "refused"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::overloaded);
  EXPECT_TRUE(refused.error().retry_after);
  const auto looked = history(JobId{});
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Code::overloaded);
  EXPECT_EQ(service_->counters().waiting, 10);
  EXPECT_EQ(service_->counters().refused_overload, 2);
  let_go();

  for (auto& call : taken) EXPECT_TRUE(call.get());
  EXPECT_EQ(service_->counters().waiting, 0);
  EXPECT_TRUE(enqueue({NewJob{.kind = "later"}}));
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'refused'"), 0);
}

TEST_F(CoalescingTest, a_key_that_floods_the_server_leaves_the_others_their_room_and_their_turn) {
  begin();
  const auto key = [](std::string name) {
    Principal who = Principal::anybody();
    who.name = std::move(name);
    who.id = "flk_" + who.name;
    return who;
  };
  const Principal hog = key("hog");
  const Principal other = key("other");
  enqueue_one();
  const Lease held = claim_one().lease;
  block_writes();
  // As many leases as it likes, of jobs that there are not.
  std::atomic<int> refused{0};
  std::atomic<int> done{0};
  const auto made_up = [] {
    std::vector<Lease> leases(500, Lease{.job = {}, .token = {1}, .lease_id = Uuid::random(), .worker = "x"});
    for (Lease& lease : leases) {
      lease.job.value = Uuid::random();
      lease.job.value.bytes[14] = lease.job.value.bytes[15] = 0;
    }
    return leases;
  };
  std::vector<Pending<std::vector<Beat>>> calls(28);
  for (auto& call : calls) {
    service_->heartbeat(hog, made_up(), std::nullopt,
                        [&, answer = call.done()](service::ServiceResult<std::vector<Beat>> beats) mutable {
                          if (!beats && beats.error().code == Code::overloaded) ++refused;
                          ++done;
                          answer(std::move(beats));
                        });
  }
  ASSERT_TRUE(somebody_waits());
  const int taken = 28 - refused;
  EXPECT_GT(refused.load(), 0);
  EXPECT_GT(taken, 5);

  // Somebody else's heartbeat, settlement and look are taken, and come before what waits longer.
  Pending<std::vector<Beat>> beat;
  int before = -1;
  service_->heartbeat(other, {held}, std::nullopt,
                      [&, answer = beat.done()](service::ServiceResult<std::vector<Beat>> beats) mutable {
                        before = done - refused;
                        answer(std::move(beats));
                      });
  Pending<JobHistory> look;
  service_->job(other, held.job, look.done());
  EXPECT_TRUE(look.get());
  Pending<std::vector<Submission>> added;
  service_->enqueue(other, {NewJob{.kind = "x"}}, added.done());
  let_go();

  EXPECT_EQ(must(beat.get()).at(0).status, Beat::Status::renewed);
  EXPECT_TRUE(added.get());
  for (auto& call : calls) static_cast<void>(call.get());
  EXPECT_LT(before, 4) << "of " << taken << " calls that were there before";
  EXPECT_LT(log_.count("stale_write_blocked"), 1'000U) << "nor does it fill the log";
  EXPECT_EQ(service_->counters().waiting, 0U);
}

TEST_F(CoalescingTest, heartbeats_and_settlements_have_room_where_others_have_none) {
  service::ServiceOptions narrow = options();
  narrow.waiting_max = 8;
  begin(narrow);
  enqueue_one();
  const Lease held = claim_one().lease;
  block_writes();
  std::vector<Pending<std::vector<Submission>>> taken(8);
  for (auto& call : taken) service_->enqueue(who_, {NewJob{.kind = "taken"}}, call.done());
  EXPECT_EQ(enqueue({NewJob{.kind = "refused"}}).error().code, Code::overloaded);

  Pending<std::vector<Beat>> beat;
  service_->heartbeat(who_, {held}, std::nullopt, beat.done());
  let_go();

  EXPECT_EQ(must(beat.get()).at(0).status, Beat::Status::renewed);
  for (auto& call : taken) EXPECT_TRUE(call.get());
}

TEST(SharesTest, whoever_comes_finds_room_and_who_is_not_known_is_not_held_back) {
  service::Shares shares{100};
  const auto take_all = [&](const std::string& account) {
    std::size_t taken = 0;
    while (shares.has_room(account, 1)) {
      shares.take(account, 1);
      ++taken;
    }
    return taken;
  };
  EXPECT_EQ(take_all("a"), 50U);
  EXPECT_EQ(take_all("b"), 25U);
  EXPECT_TRUE(shares.has_room("c", 12));
  EXPECT_FALSE(shares.has_room("c", 26));
  shares.give_back("a", 50);
  EXPECT_EQ(shares.taken(), 25U);
  EXPECT_EQ(take_all(""), 75U);
  EXPECT_FALSE(shares.has_room("c", 1));
  EXPECT_FALSE(shares.has_room("", 1));
  EXPECT_TRUE(shares.has_room("c", 1, /*extra=*/2));
}

TEST_F(CoalescingTest, what_waits_is_answered_before_it_stops) {
  begin();
  enqueue_one();
  block_writes();
  std::vector<Pending<std::vector<Submission>>> calls(50);
  for (auto& call : calls) service_->enqueue(who_, {NewJob{.kind = "last"}}, call.done());
  std::jthread stopper{[&] { service_->stop(); }};
  ASSERT_TRUE(eventually([&] { return !service_->ready(); }));
  let_go();
  stopper.join();

  for (auto& call : calls) EXPECT_TRUE(call.get());
  EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE kind = 'last'"), 50);
}

/// The coalescer by itself, with a function in the database's place where the database is not what matters.
using Numbers = service::Coalescer<int, int>;

TEST(CoalescerTest, an_error_of_one_call_does_not_spoil_the_others) {
  std::latch go{1};
  std::atomic<int> runs{0};
  Numbers coalescer{
      {.threads = 1,
       .run = [&](std::span<const int> items, std::int64_t) -> service::ServiceResult<std::vector<int>> {
         if (runs++ == 0) go.wait();
         if (std::ranges::count(items, 13) > 0)
           return std::unexpected(service::Problem{.code = service::Code::invalid});
         return std::vector<int>(items.begin(), items.end());
       }}};
  std::vector<Pending<std::vector<int>>> calls(10);
  for (int i = 0; i < 10; ++i) {
    Numbers::Call call{.items = {i, i == 5 ? 13 : 100 + i},
                       .done = calls[static_cast<std::size_t>(i)].done()};
    ASSERT_TRUE(coalescer.submit(call));
  }
  go.count_down();

  for (int i = 0; i < 10; ++i) {
    const auto answer = calls[static_cast<std::size_t>(i)].get();
    ASSERT_EQ(answer.has_value(), i != 5);
    if (answer) {
      EXPECT_EQ(*answer, (std::vector<int>{i, 100 + i}));
    }
  }
}

TEST(CoalescerTest, who_waits_for_somebody_does_not_keep_the_others_from_being_done) {
  std::latch go{1};
  std::atomic<int> runs{0};
  Numbers coalescer{
      {.threads = 1,
       .run = [&](std::span<const int> items, std::int64_t) -> service::ServiceResult<std::vector<int>> {
         if (runs++ == 0) go.wait();
         if (std::ranges::count(items, 13) > 0)
           return std::unexpected(service::Problem{.code = service::Code::unavailable});
         return std::vector<int>(items.begin(), items.end());
       }}};
  std::vector<Pending<std::vector<int>>> calls(10);
  for (int i = 0; i < 10; ++i) {
    Numbers::Call call{.items = {i == 5 ? 13 : i}, .done = calls[static_cast<std::size_t>(i)].done()};
    ASSERT_TRUE(coalescer.submit(call));
  }
  go.count_down();

  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(calls[i].get().has_value(), i != 5) << i;
}

TEST(CoalescerTest, when_its_time_is_over_a_batch_is_not_tried_call_by_call) {
  std::latch go{1};
  std::atomic<int> runs{0};
  Numbers coalescer{
      {.threads = 1,
       .patience = std::chrono::milliseconds{0},
       .run = [&](std::span<const int> items, std::int64_t) -> service::ServiceResult<std::vector<int>> {
         if (runs++ == 0) {
           go.wait();
           return std::vector<int>(items.begin(), items.end());
         }
         return std::unexpected(service::Problem{.code = service::Code::unavailable});
       }}};
  std::vector<Pending<std::vector<int>>> calls(4);
  for (auto& pending : calls) {
    Numbers::Call call{.items = {1}, .done = pending.done()};
    ASSERT_TRUE(coalescer.submit(call));
    // The first one is under way when the others come.
    ASSERT_TRUE(eventually([&] { return runs >= 1; }));
  }
  go.count_down();

  EXPECT_TRUE(calls[0].get());
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(calls[i].get().error().code, service::Code::unavailable);
  EXPECT_EQ(runs, 2);
}

TEST(CoalescerTest, an_unknown_outcome_is_not_tried_again) {
  std::latch go{1};
  std::atomic<int> runs{0};
  Numbers coalescer{
      {.threads = 1,
       .run = [&](std::span<const int> items, std::int64_t) -> service::ServiceResult<std::vector<int>> {
         if (runs++ == 0) {
           go.wait();
           return std::vector<int>(items.begin(), items.end());
         }
         return std::unexpected(service::Problem{.code = service::Code::outcome_unknown});
       }}};
  std::vector<Pending<std::vector<int>>> calls(4);
  for (auto& pending : calls) {
    Numbers::Call call{.items = {1}, .done = pending.done()};
    ASSERT_TRUE(coalescer.submit(call));
    // The first one is under way when the others come.
    ASSERT_TRUE(eventually([&] { return runs >= 1; }));
  }
  go.count_down();

  EXPECT_TRUE(calls[0].get());
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(calls[i].get().error().code, service::Code::outcome_unknown);
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace faultline::testing
