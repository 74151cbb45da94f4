// What a caller may believe after a connection broke: nothing happened, or it is not known.

#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "pg/wire_proxy.h"
#include "support/database.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::pg {
namespace {

using testing::eventually;
using testing::must;
using testing::ScratchDir;
using testing::soon;
using testing::Template;
using testing::TestDatabase;
using testing::WireProxy;

constexpr Statement kInsert{"insert", "INSERT INTO t (id) VALUES ($1)"};

class OutcomeTest : public ::testing::Test {
 protected:
  OutcomeTest() {
    must(observer_.exec_script("CREATE TABLE t (id int PRIMARY KEY)", soon()));
    connection_.emplace(testing::connect(proxy_.dsn()));
  }

  std::int64_t rows() {
    // What the cut connection left behind is decided when its backend has ended.
    constexpr Statement kBackends{"backends", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"};
    const Params pid = Params{}.add(connection_->backend_pid());
    EXPECT_TRUE(eventually(
        [&] { return must(observer_.exec(kBackends, pid, soon())).get<std::int64_t>(0, 0) == 0; }));
    return must(observer_.exec({"rows", "SELECT count(*) FROM t"}, {}, soon())).get<std::int64_t>(0, 0);
  }

  static bool copy_one_row(std::string& buffer) {
    buffer = "1\n";
    return false;
  }

  TestDatabase database_{Template::empty};
  Connection observer_ = database_.connect();
  WireProxy proxy_{database_.dsn()};
  std::optional<Connection> connection_;
};

TEST_F(OutcomeTest, a_unit_whose_answer_is_lost_is_unknown_and_was_committed) {
  proxy_.cut_after('S');
  const auto outcome = connection_->exec(kInsert, Params{}.add(1), soon());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::outcome_unknown);
  EXPECT_FALSE(outcome.error().retryable());
  EXPECT_FALSE(connection_->usable());
  EXPECT_EQ(proxy_.cuts(), 1);
  EXPECT_EQ(rows(), 1);
}

TEST_F(OutcomeTest, a_unit_whose_commit_is_lost_on_the_way_is_unknown_and_was_not_committed) {
  proxy_.cut_before('S');
  EXPECT_EQ(connection_->exec(kInsert, Params{}.add(1), soon()).error().code, Errc::outcome_unknown);
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, a_unit_cut_before_its_commit_left_this_machine_did_not_happen) {
  Unit unit;
  unit.add(kInsert, Params{}.add(1));
  const std::string body(64 * 1024, 'x');
  for (int i = 0; i < 256; ++i) unit.add({"echo", "SELECT $1"}, Params{}.add(body));
  proxy_.cut_after_client_bytes(1024 * 1024);

  const auto outcome = connection_->run(unit, soon());

  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::connection_lost);
  EXPECT_TRUE(outcome.error().retryable());
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, an_unanswered_large_unit_exceeds_its_deadline_before_its_commit_is_sent) {
  Unit unit;
  unit.add(kInsert, Params{}.add(1));
  const std::string body(64 * 1024, 'x');
  for (int i = 0; i < 256; ++i) unit.add({"echo", "SELECT $1"}, Params{}.add(body));
  proxy_.stall();

  const auto outcome = connection_->run(unit, Deadline::clock::now() + std::chrono::milliseconds{100});

  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::deadline_exceeded);
  proxy_.resume();
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, an_unanswered_small_unit_is_unknown_at_its_deadline) {
  proxy_.stall();
  const auto outcome =
      connection_->exec(kInsert, Params{}.add(1), Deadline::clock::now() + std::chrono::seconds{1});
  EXPECT_EQ(outcome.error().code, Errc::outcome_unknown);
  proxy_.resume();
}

TEST_F(OutcomeTest, the_servers_error_is_known_even_if_the_connection_breaks_after_it) {
  must(observer_.exec(kInsert, Params{}.add(1), soon()));
  proxy_.cut_after_returning('E');
  EXPECT_EQ(connection_->exec(kInsert, Params{}.add(1), soon()).error().code, Errc::unique_violation);
  EXPECT_FALSE(connection_->usable());
}

TEST_F(OutcomeTest, a_unit_is_unknown_until_its_commit_is_answered_though_its_statements_are) {
  proxy_.cut_after_returning('C');
  EXPECT_EQ(connection_->exec(kInsert, Params{}.add(1), soon()).error().code, Errc::outcome_unknown);
}

TEST_F(OutcomeTest, a_commit_is_known_once_it_is_answered) {
  must(connection_->begin(soon()));
  must(connection_->exec(kInsert, Params{}.add(1), soon()));
  proxy_.cut_after_returning('C');
  EXPECT_TRUE(connection_->commit(soon()).has_value());
  EXPECT_FALSE(connection_->usable());
  EXPECT_EQ(rows(), 1);
}

TEST_F(OutcomeTest, a_statement_of_an_open_transaction_is_never_unknown) {
  must(connection_->begin(soon()));
  must(connection_->exec(kInsert, Params{}.add(1), soon()));
  proxy_.cut_after('S');
  EXPECT_EQ(connection_->exec(kInsert, Params{}.add(2), soon()).error().code, Errc::connection_lost);
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, a_commit_whose_answer_is_lost_is_unknown_and_was_committed) {
  must(connection_->begin(soon()));
  must(connection_->exec(kInsert, Params{}.add(1), soon()));
  proxy_.cut_after('S');
  EXPECT_EQ(connection_->commit(soon()).error().code, Errc::outcome_unknown);
  EXPECT_EQ(rows(), 1);
}

TEST_F(OutcomeTest, a_commit_that_is_lost_on_the_way_is_unknown_and_was_not_committed) {
  must(connection_->begin(soon()));
  must(connection_->exec(kInsert, Params{}.add(1), soon()));
  proxy_.cut_before('P');  // the COMMIT statement itself
  EXPECT_EQ(connection_->commit(soon()).error().code, Errc::outcome_unknown);
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, a_script_whose_answer_is_lost_is_unknown) {
  proxy_.cut_after('Q');
  EXPECT_EQ(connection_->exec_script("INSERT INTO t VALUES (1)", soon()).error().code, Errc::outcome_unknown);
  EXPECT_EQ(rows(), 1);
}

TEST_F(OutcomeTest, a_copy_whose_answer_is_lost_is_unknown_and_was_committed) {
  proxy_.cut_after('c');
  EXPECT_EQ(connection_->copy_in("COPY t FROM STDIN", copy_one_row, soon()).error().code,
            Errc::outcome_unknown);
  EXPECT_EQ(rows(), 1);
}

TEST_F(OutcomeTest, a_copy_cut_before_its_end_did_not_happen) {
  proxy_.cut_before('d');
  int calls = 0;
  const auto endless = [&](std::string& buffer) {
    for (int i = 0; i < 10'000; ++i) buffer += std::to_string(++calls) + "\n";
    return true;
  };
  EXPECT_EQ(connection_->copy_in("COPY t FROM STDIN", endless, soon()).error().code, Errc::connection_lost);
  EXPECT_EQ(rows(), 0);
}

TEST_F(OutcomeTest, a_copy_in_an_open_transaction_is_never_unknown) {
  must(connection_->begin(soon()));
  proxy_.cut_after('c');
  EXPECT_EQ(connection_->copy_in("COPY t FROM STDIN", copy_one_row, soon()).error().code,
            Errc::connection_lost);
  EXPECT_EQ(rows(), 0);
}

class TerminatedTest : public ::testing::Test {
 protected:
  TerminatedTest() { must(observer_.exec_script("CREATE TABLE t (id int PRIMARY KEY)", soon())); }

  void terminate(const Connection& connection) {
    must(observer_.exec({"", "SELECT pg_terminate_backend($1, 60000)"},
                        Params{}.add(connection.backend_pid()), soon()));
  }

  TestDatabase database_{Template::empty};
  Connection observer_ = database_.connect();
  Connection connection_ = database_.connect();
};

TEST_F(TerminatedTest, a_connection_ended_while_idle_is_lost_and_nothing_happened) {
  terminate(connection_);
  const auto outcome = connection_.exec(kInsert, Params{}.add(1), soon());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::connection_lost);
  EXPECT_TRUE(outcome.error().retryable());
  EXPECT_FALSE(connection_.usable());
}

TEST_F(TerminatedTest, a_connection_ended_in_a_statement_is_lost_and_nothing_happened) {
  Unit unit;
  unit.add(kInsert, Params{}.add(1));
  unit.add({"", "SELECT pg_terminate_backend(pg_backend_pid())"}, {});
  const auto outcome = connection_.run(unit, soon());
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().code, Errc::connection_lost);
  EXPECT_EQ(outcome.error().sqlstate, "57P01");
  EXPECT_FALSE(connection_.usable());
  EXPECT_EQ(must(observer_.exec({"", "SELECT FROM t"}, {}, soon())).rows(), 0);
}

TEST_F(TerminatedTest, a_transaction_ended_between_its_statements_is_lost_even_at_the_commit) {
  must(connection_.begin(soon()));
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  terminate(connection_);
  EXPECT_EQ(connection_.commit(soon()).error().code, Errc::connection_lost);
}

/// A server of its own, whose commits wait for a standby that does not exist.
class GhostStandbyTest : public ::testing::Test {
 protected:
  GhostStandbyTest() {
    must(observer_.exec_script("CREATE TABLE t (id int PRIMARY KEY)", soon()));
    must(observer_.exec_script("ALTER SYSTEM SET synchronous_standby_names = 'ghost'", soon()));
    must(observer_.exec_script("SELECT pg_reload_conf()", soon()));
    EXPECT_TRUE(eventually([&] {
      constexpr Statement kNames{"", "SELECT current_setting('synchronous_standby_names')"};
      Connection fresh = testing::connect(server_.dsn());
      return must(fresh.exec(kNames, {}, soon())).get<std::string>(0, 0) == "ghost";
    }));
  }

  /// Runs `commit` and has `end_wait` called on its backend while it waits for the standby.
  Errc outcome_of(const std::function<Expected<void>(Connection&)>& commit, std::string_view end_wait) {
    Connection connection =
        must(Connection::open({.dsn = server_.dsn(), .settings = {{"synchronous_commit", "on"}}}, soon()));
    const Params pid = Params{}.add(connection.backend_pid());
    Expected<void> outcome;
    {
      std::jthread committing{[&] { outcome = commit(connection); }};
      constexpr Statement kWait{"", "SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'"};
      EXPECT_TRUE(eventually([&] { return must(observer_.exec(kWait, pid, soon())).rows() == 1; }));
      must(observer_.exec({"", "SELECT " + std::string{end_wait} + "($1)"}, pid, soon()));
    }
    return outcome ? Errc::server : outcome.error().code;
  }

  ScratchDir directory_;
  PrivatePostgres server_ =
      testing::start_provided_server({.data_dir = directory_ / "data", .durable = false});
  Connection observer_ =
      must(Connection::open({.dsn = server_.dsn(), .settings = {{"synchronous_commit", "local"}}}, soon()));
};

template <class T>
Expected<void> without_value(Expected<T> outcome) {
  if (!outcome) return std::unexpected(outcome.error());
  return {};
}

TEST_F(GhostStandbyTest, a_commit_that_stops_waiting_for_its_standby_is_unknown) {
  const auto unit = [](Connection& c) { return without_value(c.exec(kInsert, Params{}.add(1), soon())); };
  const auto transaction = [](Connection& c) {
    must(c.begin(soon()));
    must(c.exec(kInsert, Params{}.add(2), soon()));
    return c.commit(soon());
  };
  const auto script = [](Connection& c) { return c.exec_script("INSERT INTO t VALUES (3)", soon()); };
  const auto copy = [](Connection& c) {
    const auto one_row = [](std::string& buffer) {
      buffer = "4\n";
      return false;
    };
    return without_value(c.copy_in("COPY t FROM STDIN", one_row, soon()));
  };
  const auto terminated = [](Connection& c) {
    return without_value(c.exec(kInsert, Params{}.add(5), soon()));
  };

  EXPECT_EQ(outcome_of(unit, "pg_cancel_backend"), Errc::outcome_unknown);
  EXPECT_EQ(outcome_of(transaction, "pg_cancel_backend"), Errc::outcome_unknown);
  EXPECT_EQ(outcome_of(script, "pg_cancel_backend"), Errc::outcome_unknown);
  EXPECT_EQ(outcome_of(copy, "pg_cancel_backend"), Errc::outcome_unknown);
  EXPECT_EQ(outcome_of(terminated, "pg_terminate_backend"), Errc::outcome_unknown);
  EXPECT_EQ(must(observer_.exec({"", "SELECT FROM t"}, {}, soon())).rows(), 5);
}

TEST_F(TerminatedTest, a_warning_of_a_function_does_not_put_a_commit_in_doubt) {
  Unit unit;
  unit.add(kInsert, Params{}.add(1));
  unit.add({"", "DO $$ BEGIN RAISE WARNING 'mind the gap'; END $$"}, {});
  EXPECT_TRUE(connection_.run(unit, soon()).has_value());
}

}  // namespace
}  // namespace faultline::pg
