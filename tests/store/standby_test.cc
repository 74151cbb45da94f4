// A commit that was to wait for a synchronous standby and did not is not acknowledged, however it is found
// out.

#include <atomic>
#include <thread>

#include "private_pg/private_postgres.h"
#include "schema/migrator.h"
#include "store/fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

/// A server of its own, whose commits wait for a standby that does not exist after
/// `wait_for_standby("ghost")`.
class StandbyTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;

  StandbyTest() {
    auto connection = connect(server_.dsn());
    if (!schema::migrate(connection, {}, soon())) throw std::runtime_error("the database was not migrated");
    store_.emplace(must(Store::open({.database = server_.dsn(), .call_timeout = ms{1'500}})));
  }

  void wait_for_standby(const std::string& name) {
    const auto run = [&](const std::string& sql) {
      if (auto done = observer_.exec_script(sql, soon()); !done)
        throw std::runtime_error(done.error().message);
    };
    run("ALTER SYSTEM SET synchronous_standby_names = '" + name + "'");
    run("SELECT pg_reload_conf()");
    ASSERT_TRUE(eventually([&] {
      auto fresh = connect(server_.dsn());
      return query_text(fresh, "SELECT current_setting('synchronous_standby_names')") == name;
    }));
    if (!name.empty()) wait_for_a_commit_that_waits();
  }
  /// The checkpointer decides whether commits wait, and reads the setting in its own time.
  void wait_for_a_commit_that_waits() {
    std::atomic<bool> over{false};
    std::atomic<int> cancelled{0};
    std::jthread operator_{[&] { cancel_waits(over, cancelled); }};
    EXPECT_TRUE(eventually([&] {
      auto fresh = connect(server_.dsn());
      // What it says is what the tests are about.
      (void)fresh.exec_script(
          "SET synchronous_commit = on; SELECT pg_logical_emit_message(true, 'test', 'a commit')", soon());
      return cancelled > 0;
    }));
    over = true;
  }
  std::string ask(const std::string& sql) { return query_text(observer_, sql); }
  /// Ends every wait for the standby until `over`, as an impatient operator does.
  void cancel_waits(const std::atomic<bool>& over, std::atomic<int>& cancelled) {
    while (!over) {
      cancelled += std::stoi(ask(
          "SELECT count(pg_cancel_backend(pid))::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"));
      std::this_thread::sleep_for(ms{10});
    }
  }
  /// What a call says while waits for the standby are cancelled.
  template <class Call>
  auto while_waits_are_cancelled(const Call& call) {
    std::atomic<bool> over{false};
    std::atomic<int> cancelled{0};
    std::jthread operator_{[&] { cancel_waits(over, cancelled); }};
    auto answer = call();
    over = true;
    operator_.join();
    EXPECT_GT(cancelled, 0);
    return answer;
  }

  ScratchDir directory_;
  PrivatePostgres server_ = start_provided_server({.data_dir = directory_ / "data", .durable = false});
  pg::Connection observer_ = observer();
  std::optional<Store> store_;

 private:
  pg::Connection observer() {
    auto opened =
        pg::Connection::open({.dsn = server_.dsn(), .settings = {{"synchronous_commit", "local"}}}, soon());
    if (!opened) throw std::runtime_error(opened.error().message);
    return std::move(*opened);
  }
};

TEST_F(StandbyTest, a_submission_that_is_not_on_the_standby_is_not_acknowledged) {
  wait_for_standby("ghost");

  const auto added = while_waits_are_cancelled([&] { return store_->enqueue(NewJob{.kind = "test"}); });

  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, ErrorCode::outcome_unknown);
  // It is there, on this server alone.
  EXPECT_EQ(ask("SELECT count(*)::text FROM faultline.jobs WHERE queue <> ''"), "1");
}

TEST_F(StandbyTest, a_settlement_that_is_not_on_the_standby_is_not_acknowledged) {
  must(store_->enqueue(std::vector<NewJob>(2, {.kind = "test"})));
  const auto claimed = must(store_->claim({.worker = "w", .limit = 2}));
  wait_for_standby("ghost");

  const Settlement settlement{.lease = claimed.at(0).lease};
  const auto verdicts = while_waits_are_cancelled([&] { return store_->settle({&settlement, 1}); });
  if (verdicts) EXPECT_EQ(verdicts->at(0).status, Verdict::Status::unknown);

  const auto by_transaction = while_waits_are_cancelled(
      [&] { return store_->transact(claimed.at(1).lease, [](Transaction&) { return Outcome::success(); }); });
  if (by_transaction) EXPECT_EQ(by_transaction->status, Verdict::Status::unknown);

  const Lease leases[] = {claimed.at(0).lease, claimed.at(1).lease};
  EXPECT_FALSE(while_waits_are_cancelled([&] { return store_->resolve(leases); }));
}

TEST_F(StandbyTest, what_was_in_doubt_is_acknowledged_when_the_standby_is_back) {
  wait_for_standby("ghost");
  std::atomic<int> cancelled{0};
  std::jthread operator_{[&] {
    // Once, and then nobody waits for it any more.
    while (cancelled == 0) {
      cancelled += std::stoi(ask(
          "SELECT count(pg_cancel_backend(pid))::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"));
      std::this_thread::sleep_for(ms{5});
    }
    wait_for_standby("");
  }};

  const auto added = must(store_->enqueue(NewJob{.kind = "test"}));

  EXPECT_EQ(added.status, Submission::Status::created);
}

}  // namespace
}  // namespace faultline::testing
