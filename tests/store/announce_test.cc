// Announcements wake idle workers. They are hints, few, and never before the commit that they speak of.

#include "store/announce.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include <libpq-fe.h>

#include "pg/wire_proxy.h"
#include "store/fixture.h"
#include "store/listener.h"
#include "support/pgbouncer.h"

namespace faultline::testing {
namespace {

using store::Announcer;
using store::Listener;

/// What a listener has called so far.
class Heard {
 public:
  [[nodiscard]] Listener::Callbacks callbacks() {
    return {.announced =
                [this](std::string_view queue) {
                  const std::lock_guard lock{mutex_};
                  ++queues_[std::string{queue}];
                },
            .connected =
                [this] {
                  const std::lock_guard lock{mutex_};
                  ++connects_;
                }};
  }
  [[nodiscard]] int times(const std::string& queue) {
    const std::lock_guard lock{mutex_};
    return queues_[queue];
  }
  [[nodiscard]] int connects() {
    const std::lock_guard lock{mutex_};
    return connects_;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> queues_;
  int connects_ = 0;
};

class AnnounceTest : public StoreTest {
 protected:
  AnnounceTest() {
    if (!eventually([&] { return heard_.connects() == 1; })) throw std::runtime_error("it does not listen");
  }

  /// Announcements come in the order of their commits: behind this one, all earlier ones were heard.
  void hear_all_so_far() {
    const std::string mark = "mark " + std::to_string(++marks_);
    script("SELECT pg_notify('faultline_jobs', '" + mark + "')");
    ASSERT_TRUE(eventually([&] { return heard_.times(mark) == 1; }));
  }
  int heard(const std::string& queue) {
    hear_all_so_far();
    return heard_.times(queue);
  }
  /// A queue of its own, so that nothing announced before keeps its announcement back.
  std::string queue() {
    const std::string name = "q" + std::to_string(++queues_);
    must(store_.set_queue(name, {.backoff_base = ms{0}}));
    return name;
  }
  /// The queue may be announced again.
  static void let_the_interval_pass() { std::this_thread::sleep_for(Announcer::kInterval); }

  Heard heard_;
  Listener listener_{database_.dsn(), "listener", heard_.callbacks()};
  int marks_ = 0;
  int queues_ = 0;
};

TEST(AnnouncerTest, a_queue_is_announced_once_per_interval) {
  using enum Announcer::Commit;
  Announcer announcer;
  const Announcer::Clock::time_point start{};
  const auto last = start + Announcer::kInterval - std::chrono::nanoseconds{1};

  EXPECT_TRUE(announcer.due("a", at_once, start));
  EXPECT_FALSE(announcer.due("a", at_once, start));
  EXPECT_FALSE(announcer.due("a", at_once, last));
  EXPECT_TRUE(announcer.due("b", at_once, last)) << "another queue has its own turn";
  EXPECT_TRUE(announcer.due("a", at_once, start + Announcer::kInterval));
  EXPECT_FALSE(announcer.due("a", at_once, start + Announcer::kInterval));
}

TEST(AnnouncerTest, an_announcement_that_waits_for_somebody_elses_commit_keeps_none_back_that_does_not) {
  using enum Announcer::Commit;
  Announcer announcer;
  const Announcer::Clock::time_point start{};

  EXPECT_TRUE(announcer.due("a", later, start));
  EXPECT_FALSE(announcer.due("a", later, start));
  EXPECT_TRUE(announcer.due("a", at_once, start));
}

TEST_F(AnnounceTest, new_jobs_are_announced_once_per_queue_however_many_they_are) {
  const std::string a = queue();
  const std::string b = queue();
  const std::string by_copy = queue();
  const std::string in_bulk = queue();
  std::vector<NewJob> batch(100, NewJob{.queue = a, .kind = "k"});
  batch.push_back({.queue = b, .kind = "k", .idempotency_key = "key"});

  must(store_.enqueue(batch));
  must(store_.enqueue(std::vector<NewJob>(600, NewJob{.queue = by_copy, .kind = "k"})));
  int left = 3;
  must(store_.enqueue_bulk([&]() -> std::optional<NewJob> {
    if (left-- == 0) return std::nullopt;
    return NewJob{.queue = in_bulk, .kind = "k"};
  }));

  hear_all_so_far();
  for (const std::string& name : {a, b, by_copy, in_bulk}) EXPECT_EQ(heard_.times(name), 1) << name;
}

TEST_F(AnnounceTest, jobs_that_are_not_due_yet_are_not_announced) {
  const std::string later = queue();
  const DatabaseTime tomorrow = must(store_.now()) + std::chrono::hours{24};
  const NewJob delayed{.queue = later, .kind = "k", .delay = ms{60'000}};

  enqueue(delayed);
  enqueue({.queue = later, .kind = "k", .run_at = tomorrow});
  enqueue_many(600, delayed);
  script("SELECT faultline.enqueue('" + later + "', 'k', '{}', delay => '1 minute')");

  EXPECT_EQ(heard(later), 0);
}

TEST_F(AnnounceTest, jobs_in_the_callers_transaction_are_announced_when_it_commits_and_not_before) {
  const std::string mine = queue();
  const std::string undone = queue();
  const std::unique_ptr<PGconn, decltype(&PQfinish)> own{PQconnectdb(database_.dsn().c_str()), &PQfinish};
  const auto enqueue_into = [&](const std::string& name) {
    PQclear(PQexec(own.get(), "BEGIN"));
    const NewJob job{.queue = name, .kind = "k"};
    must(store_.enqueue_in(own.get(), {&job, 1}));
  };

  enqueue_into(undone);
  PQclear(PQexec(own.get(), "ROLLBACK"));
  enqueue_into(mine);

  EXPECT_EQ(heard(mine), 0);
  PQclear(PQexec(own.get(), "COMMIT"));
  EXPECT_EQ(heard(mine), 1);
  EXPECT_EQ(heard_.times(undone), 0);
}

TEST_F(AnnounceTest, sql_producers_announce_when_they_commit) {
  const std::string mine = queue();
  script("BEGIN; SELECT faultline.enqueue('" + mine + "', 'k', '{}') FROM generate_series(1, 50)");
  auto other = database_.connect();
  must(other.exec_script("SELECT pg_notify('faultline_jobs', 'in between')", soon()));
  ASSERT_TRUE(eventually([&] { return heard_.times("in between") == 1; }));
  EXPECT_EQ(heard_.times(mine), 0);

  script("COMMIT");

  EXPECT_EQ(heard(mine), 1);
}

TEST_F(AnnounceTest, a_rolled_back_announcement_of_a_sql_producer_keeps_no_later_one_back) {
  const std::string mine = queue();
  const std::string add = "SELECT faultline.enqueue('" + mine + "', 'k', '{}');";
  script("BEGIN;" + add + "ROLLBACK; BEGIN;" + add + "COMMIT");
  EXPECT_EQ(heard(mine), 1);
}

TEST_F(AnnounceTest, what_makes_jobs_available_to_others_is_announced) {
  const auto told = [&](const std::string& name, const auto& act) {
    hear_all_so_far();
    const int before = heard_.times(name);
    let_the_interval_pass();
    act();
    return heard(name) - before;
  };
  const auto claimed = [&](const std::string& name) {
    enqueue({.queue = name, .kind = "k"});
    return claim_one("A", name).lease;
  };
  const std::string name = queue();

  Lease lease = claimed(name);
  EXPECT_EQ(told(name, [&] { settle(lease, Outcome::release()); }), 1) << "release";
  lease = claim_one("A", name).lease;
  EXPECT_EQ(told(name, [&] { settle(lease, Outcome::snooze(ms{60'000})); }), 0) << "snooze";

  lease = claimed(name);
  EXPECT_EQ(told(name, [&] { settle(lease, Outcome::bury("b")); }), 0) << "bury";
  EXPECT_EQ(told(name, [&] { requeue(lease.job); }), 1) << "requeue of a dead job";
  lease = claim_one("A", name).lease;
  EXPECT_EQ(told(name, [&] { complete(lease); }), 0) << "complete";
  EXPECT_EQ(told(name, [&] { requeue(lease.job); }), 1) << "requeue of a finished job";

  lease = claim_one("A", name).lease;
  advance(kTtl);
  EXPECT_EQ(told(name, [&] { EXPECT_EQ(sweep().size(), 1U); }), 1) << "expired, to be retried at once";

  EXPECT_EQ(told(name, [&] { must(store_.pause(name)); }), 0) << "pause";
  EXPECT_EQ(told(name, [&] { must(store_.resume(name)); }), 1) << "resume";
}

TEST_F(AnnounceTest, a_release_in_an_exchange_is_announced) {
  const std::string name = queue();
  enqueue({.queue = name, .kind = "k"});
  const Settlement release{.lease = claim_one("A", name).lease, .outcome = Outcome::release()};
  const int before = heard(name);
  let_the_interval_pass();

  must(store_.exchange({&release, 1}, {.worker = "A"}));

  EXPECT_EQ(heard(name), before + 1);
}

TEST_F(AnnounceTest, the_listener_comes_back_after_its_connection_was_ended_and_says_so) {
  for (int round = 2; round <= 4; ++round) {
    script(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'listener'");
    ASSERT_TRUE(eventually([&] { return heard_.connects() == round; }));
    hear_all_so_far();
  }
}

TEST(ListenerTest, ends_while_no_server_is_there) {
  Heard heard;
  {
    const Listener listener{"host=/nonexistent", "listener", heard.callbacks()};
  }
  EXPECT_EQ(heard.connects(), 0);
}

TEST_F(AnnounceTest, a_listener_ends_while_its_server_does_not_answer) {
  WireProxy proxy{database_.dsn()};
  Heard heard;
  auto silent = std::make_unique<Listener>(proxy.dsn(), "silent", heard.callbacks());
  ASSERT_TRUE(eventually([&] { return heard.connects() == 1; }));
  proxy.stall();
  Heard unheard;
  auto connecting = std::make_unique<Listener>(proxy.dsn(), "connecting", unheard.callbacks());

  silent.reset();
  connecting.reset();

  EXPECT_EQ(unheard.connects(), 0);
  proxy.resume();
}

TEST_F(AnnounceTest, behind_a_pooler_the_listener_calls_nothing_and_ends) {
  const PgBouncer bouncer{database_.dsn()};
  Heard heard;
  {
    const Listener pooled{bouncer.dsn(), "pooled", heard.callbacks()};
    // It has looked, and closed its connection again.
    EXPECT_TRUE(eventually([&] {
      return number(
                 "SELECT count(*) FROM pg_stat_activity"
                 " WHERE datname = current_database() AND application_name = 'pooled'") == 1;
    }));
    enqueue({.kind = "k"});
    hear_all_so_far();
  }
  EXPECT_EQ(heard.connects(), 0);
  EXPECT_EQ(heard.times("default"), 0);
}

}  // namespace
}  // namespace faultline::testing
