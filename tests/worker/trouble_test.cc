// The database goes away and comes back, in every way it can: each job succeeds once, and nobody has to help.

#include <array>
#include <csignal>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "pg/wire_proxy.h"
#include "private_pg/private_postgres.h"
#include "schema/migrator.h"
#include "support/movable_clock.h"
#include "support/pgbouncer.h"
#include "support/scratch.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

class TroubleTest : public WorkerTest {
 protected:
  /// Each job has succeeded, once, and no job twice.
  void expect_one_success_each(std::int64_t jobs) {
    EXPECT_EQ(successes(), jobs);
    EXPECT_EQ(number("SELECT count(DISTINCT job_id) FROM faultline.ledger WHERE outcome = 'succeeded'"),
              jobs);
    EXPECT_EQ(number("SELECT count(*) FROM faultline.jobs WHERE queue <> ''"), 0);
  }
  std::int64_t terminate_all_others() {
    return number(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'faultline worker%'");
  }
};

TEST_F(TroubleTest, all_its_connections_are_terminated_again_and_again) {
  must(store_.set_queue("default", {.lease_ttl = ms{2'000}, .backoff_base = ms{0}}));
  WorkerOptions steady = options();
  steady.log_from = Severity::info;
  Worker worker{steady};
  worker.handle("test", [](Context&) { std::this_thread::sleep_for(std::chrono::microseconds{500}); });
  must(worker.start());

  std::int64_t jobs = 0;
  std::int64_t terminated = 0;
  std::int64_t next_at = 100;
  do {
    jobs += static_cast<std::int64_t>(enqueue_many(5'000).size());
    ASSERT_TRUE(sweeping_until([&] {
      const std::int64_t now = successes();
      if (now >= next_at) {
        terminated += terminate_all_others();
        next_at = now + 250;
      }
      return now >= jobs;
    }));
  } while (terminated <= 10);
  worker.drain();

  expect_one_success_each(jobs);
}

TEST_F(TroubleTest, answers_of_commits_are_lost_at_random_points) {
  constexpr int kCutsMax = 100;
  // The database's time stands still while a worker lives: no lease runs out, and nothing may be refused.
  MovableClock clock{database_.dsn()};
  must(store_.set_queue("default", {.lease_ttl = ms{3'000}, .backoff_base = ms{0}}));
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = options();
  far.database = proxy.dsn();
  far.log_from = Severity::info;
  far.prefetch_max = 60;  // many small exchanges
  far.watchdog = false;

  std::int64_t jobs = 0;
  std::minstd_rand random{20'260'101};
  int armed = 0;
  const auto live = [&] {
    Worker worker{far};
    worker.handle("test", [](Context&) { std::this_thread::sleep_for(ms{1}); });
    must(worker.start());
    ASSERT_TRUE(eventually([&] {
      // The next cut is armed when the one before was made.
      if (proxy.cuts() == armed && armed < kCutsMax) {
        const auto nth = static_cast<int>(random() % 4 + 1);
        random() % 3 == 0 ? proxy.cut_before('S', nth) : proxy.cut_after('S', nth);
        ++armed;
      }
      return successes() >= jobs || is_idle(worker);
    }));
  };
  do {
    jobs += static_cast<std::int64_t>(enqueue_many(2'000).size());
    ASSERT_TRUE(eventually([&] {
      live();
      // What was claimed by an answer that nobody got.
      clock.advance(std::chrono::minutes{1});
      must(store_.expire_leases());
      return successes() >= jobs;
    }));
  } while (proxy.cuts() <= 5);

  expect_one_success_each(jobs);
  EXPECT_EQ(evidence(), 0) << query_text(
      sql_, "SELECT string_agg(verb || ' ' || reason::text, ', ') FROM faultline.stale_writes");
}

TEST_F(TroubleTest, a_locked_table_keeps_backends_bounded_and_costs_no_job_its_life) {
  constexpr std::int64_t kJobs = 60;
  const auto backends = [&] {
    return number(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'faultline worker%'");
  };
  std::atomic<int> ran{0};
  const auto make = [&](const std::string& name) {
    WorkerOptions some = options(name);
    some.log_from = Severity::info;
    some.watchdog = false;
    some.drain_max = ms{0};
    auto worker = std::make_unique<Worker>(some);
    worker->handle("test", [&](Context&) { ++ran; });
    must(worker->start());
    return worker;
  };
  // Paused until the table is locked: then every claim waits, and would find them when the lock goes.
  must(store_.pause("default"));
  enqueue_many(kJobs, {.delivery = Delivery::at_most_once});
  auto other = database_.connect();
  std::vector<std::unique_ptr<Worker>> workers;
  for (const char* name : {"a", "b", "c"}) workers.push_back(make(name));
  // Two connections for claims, one for heartbeats, four for handlers, a listener: of each worker, at most.
  constexpr std::int64_t kEach = 8;
  must(other.exec_script("BEGIN; LOCK TABLE faultline.jobs IN ACCESS EXCLUSIVE MODE", soon()));
  must(store_.resume("default"));
  const auto waiting = [&] {
    return number(
        "SELECT count(DISTINCT application_name) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        " AND application_name LIKE 'faultline worker%'");
  };
  ASSERT_TRUE(eventually([&] { return waiting() == 3; }));
  EXPECT_EQ(events_.count("database_lost"), 0);
  EXPECT_LE(backends(), 3 * kEach);
  workers.clear();  // their claims are given up while they wait
  must(other.exec_script("ROLLBACK", soon()));

  auto heir = make("heir");

  // What was claimed in vain is free again when its lease has run out, and has not been begun.
  script(
      "UPDATE faultline.jobs SET lease_expires_at = faultline.clock() WHERE state = 'running' AND worker <> "
      "'heir';"
      "UPDATE faultline.grants SET check_at = faultline.clock() - interval '1 second'");
  ASSERT_TRUE(sweeping_until([&] { return successes() == kJobs; })) << query_text(
      sql_,
      "SELECT string_agg(DISTINCT concat_ws(' ', state, worker, begun, suspect, attempt, last_error), '; ')"
      " FROM faultline.jobs WHERE queue <> ''");
  heir->drain();
  EXPECT_EQ(counts().dead, 0);
  EXPECT_EQ(ran, kJobs);
}

TEST_F(TroubleTest, the_network_stalls_and_comes_back) {
  must(store_.set_queue("default", {.lease_ttl = ms{2'000}, .backoff_base = ms{0}}));
  constexpr std::size_t kJobs = 200;
  constexpr std::size_t kStalls = 2;
  constexpr std::int64_t kAll = kJobs + kStalls;
  WireProxy proxy{database_.dsn()};
  WorkerOptions far = options();
  far.database = proxy.dsn();
  far.log_from = Severity::info;
  std::array<Gate, kStalls> gates;
  Worker worker{far};
  worker.handle("test", [](Context&) { std::this_thread::sleep_for(ms{2}); });
  for (std::size_t stall = 0; stall < kStalls; ++stall)
    worker.handle("stall " + std::to_string(stall), [&gate = gates.at(stall)](Context&) { gate.pass(); });
  must(worker.start());

  for (std::size_t stall = 0; stall < kStalls; ++stall) {
    enqueue_many(kJobs / kStalls);
    enqueue({.kind = "stall " + std::to_string(stall), .priority = 0});
    ASSERT_TRUE(gates.at(stall).reached_by(1));
    proxy.stall();
    gates.at(stall).open();
    ASSERT_TRUE(eventually([&] { return must(store_.expire_leases()).expired.size() > 0; }));
    proxy.resume();
  }
  ASSERT_TRUE(sweeping_until([&] { return successes() >= kAll; }));
  worker.drain();

  expect_one_success_each(kAll);
}

TEST_F(TroubleTest, behind_a_transaction_pooler_everything_works_by_polling) {
  constexpr int kJobs = 500;
  const PgBouncer bouncer{database_.dsn()};
  WorkerOptions pooled = options();
  pooled.database = bouncer.dsn();
  pooled.poll_max = ms{100};
  set_ttl(ms{3'000});
  Gate gate;
  Worker worker{pooled};
  worker.handle("test", [](Context&) { return "pooled"; }).handle("long", [&](Context& ctx) {
    ctx.progress(0.5, "half");
    gate.pass();
    ctx.check_fence();
    ctx.commit([](Transaction& tx) { tx.exec("SELECT 1"); });
  });
  must(worker.start());

  const JobId lasting = enqueue({.kind = "long"});
  ASSERT_TRUE(gate.reached_by(1));
  enqueue_many(kJobs);
  ASSERT_TRUE(eventually([&] { return successes() == kJobs; }));
  const DatabaseTime until = must(store_.now()) + ms{3'500};
  ASSERT_TRUE(sweeping_until([&] { return must(store_.now()) > until && job(lasting).progress == 0.5; }));
  gate.open();

  EXPECT_TRUE(reaches(lasting, JobState::succeeded));
  worker.drain();
  expect_one_success_each(kJobs + 1);
  EXPECT_EQ(evidence(), 0);
}

/// A server of the test's own, which it may stop.
class RestartTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;

  RestartTest() : server_(start_provided_server(server_options())) {
    auto connection = connect(server_.dsn());
    must(schema::migrate(connection, schema::MigrateOptions{}, soon()));
    store_.emplace(must(Store::open({.database = server_.dsn()})));
  }

  [[nodiscard]] PrivatePostgresOptions server_options() const {
    PrivatePostgresOptions options;
    options.data_dir = scratch_ / "data";
    options.durable = false;  // the server crashes, the machine does not
    return options;
  }
  /// As a crash of the server: all connections break, and what was not committed is gone.
  void crash() {
    ASSERT_EQ(::kill(server_.postmaster_pid(), SIGQUIT), 0);
    ASSERT_TRUE(eventually([&] { return server_.postmaster_pid() == 0; }));
  }
  std::int64_t succeeded() { return must(store_->counts("default")).at(0).succeeded; }

  ScratchDir scratch_;
  PrivatePostgres server_;
  std::optional<Store> store_;
  Events events_;
};

TEST_F(RestartTest, a_server_that_crashes_amid_the_work_is_found_again) {
  constexpr int kJobs = 2'000;
  must(store_->set_queue("default", {.lease_ttl = ms{2'000}, .backoff_base = ms{0}}));
  must(store_->enqueue(std::vector<NewJob>(kJobs, NewJob{.kind = "test"})));
  Worker worker{{.database = server_.dsn(), .name = "w", .slots = 4, .log = events_.sink()}};
  worker.handle("test", [](Context&) { std::this_thread::sleep_for(ms{1}); });
  must(worker.start());

  for (int crashes = 1; crashes <= 2; ++crashes) {
    ASSERT_TRUE(eventually([&] { return succeeded() > crashes * 200; }));
    crash();
    must(server_.ensure_running());
  }
  ASSERT_TRUE(eventually([&] {
    must(store_->expire_leases());
    return succeeded() >= kJobs;
  }));
  worker.drain();

  auto sql = connect(server_.dsn());
  EXPECT_EQ(query_text(sql,
                       "SELECT count(*) || ' ' || count(DISTINCT job_id) FROM faultline.ledger"
                       " WHERE outcome = 'succeeded'"),
            "2000 2000");
  EXPECT_EQ(query_text(sql, "SELECT count(*)::text FROM faultline.jobs WHERE queue <> ''"), "0");
}

TEST_F(RestartTest, an_outage_leaves_a_line_when_it_begins_and_one_when_it_is_over) {
  Worker worker{{.database = server_.dsn(), .name = "w", .watchdog = false, .log = events_.sink()}};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  crash();
  ASSERT_TRUE(eventually([&] { return events_.count("database_lost") == 1; }));
  EXPECT_EQ(events_.count("database_back"), 0);
  must(server_.ensure_running());

  ASSERT_TRUE(eventually([&] { return events_.count("database_back") == 1; }));
  EXPECT_EQ(events_.of("database_back").at(0).fields.at(0).first, "lasted_ms");
  EXPECT_EQ(events_.count("database_lost"), 1);
}

TEST_F(RestartTest, an_idle_worker_hears_again_after_a_restart_and_tells_of_the_gap) {
  Worker worker{
      {.database = server_.dsn(), .name = "w", .poll_max = std::chrono::hours{1}, .log = events_.sink()}};
  worker.handle("test", [](Context&) {});
  must(worker.start());
  ASSERT_TRUE(eventually([&] { return worker.stats().claimed == 0; }));
  crash();
  must(server_.ensure_running());

  must(store_->enqueue(NewJob{.kind = "test"}));

  EXPECT_TRUE(eventually([&] { return succeeded() == 1; }));
}

}  // namespace
}  // namespace faultline::testing
