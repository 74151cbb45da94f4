#include <thread>

#include <gtest/gtest.h>

#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

constexpr Statement kInsert{"insert", "INSERT INTO t (id) VALUES ($1)"};
constexpr Statement kCount{"count", "SELECT count(*) FROM t"};

class UnitTest : public ::testing::Test {
 protected:
  UnitTest() { must(connection_.exec_script("CREATE TABLE t (id int PRIMARY KEY, body text)", soon())); }

  static std::int64_t count(Connection& connection) {
    return must(connection.exec(kCount, {}, soon())).get<std::int64_t>(0, 0);
  }
  std::int64_t count() { return count(connection_); }

  std::int64_t prepared(std::string_view name) {
    constexpr Statement kPrepared{"", "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE $1"};
    return must(connection_.exec(kPrepared, Params{}.add(name), soon())).get<std::int64_t>(0, 0);
  }

  TestDatabase database_{Template::empty};
  Connection connection_ = database_.connect();
};

TEST_F(UnitTest, gives_the_results_in_order) {
  Unit unit;
  for (int i = 0; i < 5; ++i) unit.add({"echo", "SELECT $1"}, Params{}.add(i));
  const auto results = must(connection_.run(unit, soon()));
  ASSERT_EQ(results.size(), 5U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)].get<int>(0, 0), i);
}

TEST_F(UnitTest, an_error_undoes_the_whole_unit_and_leaves_the_connection_usable) {
  Unit unit;
  unit.add(kInsert, Params{}.add(1));
  unit.add({"divide", "SELECT 1 / ($1 - $1)"}, Params{}.add(1));
  unit.add(kInsert, Params{}.add(2));

  const auto failed = connection_.run(unit, soon());

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::invalid_value);
  EXPECT_EQ(failed.error().statement, "divide");
  EXPECT_TRUE(connection_.usable());
  EXPECT_FALSE(connection_.in_transaction());
  EXPECT_EQ(count(), 0);
}

TEST_F(UnitTest, a_constraint_that_fails_at_the_commit_undoes_the_unit) {
  must(connection_.exec_script("CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)", soon()));
  constexpr Statement kLate{"late", "WITH t AS (INSERT INTO t VALUES ($1)) INSERT INTO late VALUES (0)"};
  Unit unit;
  unit.add(kLate, Params{}.add(1));
  unit.add(kLate, Params{}.add(2));

  const auto failed = connection_.run(unit, soon());

  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::unique_violation);
  EXPECT_TRUE(connection_.usable());
  EXPECT_EQ(count(), 0);
}

TEST_F(UnitTest, megabytes_in_both_directions_do_not_deadlock) {
  const std::string body(64 * 1024, 'x');
  Unit unit;
  for (int i = 0; i < 256; ++i) unit.add({"echo", "SELECT $1, $1"}, Params{}.add(body));

  const auto results = must(connection_.run(unit, soon()));

  ASSERT_EQ(results.size(), 256U);
  for (const Result& result : results) EXPECT_EQ(result.get<std::string_view>(0, 1), body);
}

TEST_F(UnitTest, a_named_statement_is_prepared_once) {
  for (int i = 0; i < 3; ++i) must(connection_.exec(kInsert, Params{}.add(i), soon()));
  Unit unit;
  unit.add(kInsert, Params{}.add(10)).add(kInsert, Params{}.add(11));
  must(connection_.run(unit, soon()));

  EXPECT_EQ(count(), 5);
  EXPECT_EQ(prepared("insert%"), 1);
}

TEST_F(UnitTest, a_named_statement_with_other_parameter_types_is_prepared_beside_the_first) {
  constexpr Statement kEcho{"echo", "SELECT $1::text"};
  EXPECT_EQ(must(connection_.exec(kEcho, Params{}.add(1), soon())).get<std::string>(0, 0), "1");
  EXPECT_EQ(must(connection_.exec(kEcho, Params{}.add(std::int64_t{2}), soon())).get<std::string>(0, 0), "2");
  EXPECT_EQ(must(connection_.exec(kEcho, Params{}.add(3), soon())).get<std::string>(0, 0), "3");
  EXPECT_EQ(prepared("echo%"), 2);
}

TEST_F(UnitTest, a_statement_that_cannot_be_prepared_is_not_remembered) {
  constexpr Statement kLater{"later", "SELECT id FROM later"};
  EXPECT_EQ(connection_.exec(kLater, {}, soon()).error().code, Errc::undefined_object);
  must(connection_.exec_script("CREATE TABLE later (id int)", soon()));
  EXPECT_TRUE(connection_.exec(kLater, {}, soon()).has_value());
}

TEST_F(UnitTest, prepares_again_after_the_session_lost_its_statements) {
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  must(connection_.exec_script("DEALLOCATE ALL", soon()));
  must(connection_.exec(kInsert, Params{}.add(2), soon()));
  EXPECT_EQ(count(), 2);
}

TEST_F(UnitTest, prepares_again_after_the_schema_changed_the_result_type) {
  constexpr Statement kAll{"all", "SELECT * FROM t"};
  must(connection_.exec(kAll, {}, soon()));
  must(connection_.exec_script("ALTER TABLE t ADD COLUMN more int", soon()));
  EXPECT_EQ(must(connection_.exec(kAll, {}, soon())).columns(), 3);
}

TEST_F(UnitTest, replaces_a_statement_that_somebody_prepared_under_its_name) {
  must(connection_.exec_script("PREPARE insert AS SELECT 1", soon()));
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  EXPECT_EQ(count(), 1);
}

TEST_F(UnitTest, an_open_transaction_is_not_repeated_when_a_prepared_statement_is_gone) {
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  must(connection_.begin(soon()));
  must(connection_.exec_script("DEALLOCATE ALL", soon()));
  EXPECT_EQ(connection_.exec(kInsert, Params{}.add(2), soon()).error().sqlstate, "26000");
  connection_.rollback(soon());
  must(connection_.exec(kInsert, Params{}.add(3), soon()));
  EXPECT_EQ(count(), 2);
}

TEST_F(UnitTest, runs_inside_an_open_transaction_and_goes_with_it) {
  must(connection_.begin(soon()));
  Unit unit;
  unit.add(kInsert, Params{}.add(1)).add(kInsert, Params{}.add(2));
  must(connection_.run(unit, soon()));
  EXPECT_TRUE(connection_.in_transaction());
  Connection other = database_.connect();
  EXPECT_EQ(count(other), 0);
  connection_.rollback(soon());
  EXPECT_FALSE(connection_.in_transaction());
  EXPECT_EQ(count(other), 0);

  must(connection_.begin(soon()));
  must(connection_.run(unit, soon()));
  must(connection_.commit(soon()));
  EXPECT_EQ(count(other), 2);
}

TEST_F(UnitTest, committing_a_failed_transaction_is_an_error_and_not_a_success) {
  must(connection_.begin(soon()));
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  EXPECT_FALSE(connection_.exec({"", "SELECT 1 / 0"}, {}, soon()).has_value());

  const auto committed = connection_.commit(soon());

  ASSERT_FALSE(committed.has_value());
  EXPECT_EQ(committed.error().sqlstate, "25P02");
  EXPECT_FALSE(connection_.in_transaction());
  EXPECT_EQ(count(), 0);
}

TEST_F(UnitTest, rollback_without_a_transaction_is_harmless) {
  connection_.rollback(soon());
  EXPECT_EQ(count(), 0);
}

TEST_F(UnitTest, transactions_are_read_committed_whatever_the_database_says) {
  must(connection_.exec_script(
      "ALTER DATABASE " + database_.name() + " SET default_transaction_isolation = 'serializable'", soon()));
  Connection connection = database_.connect();
  constexpr Statement kIsolation{"", "SELECT current_setting('transaction_isolation')"};
  EXPECT_EQ(must(connection.exec(kIsolation, {}, soon())).get<std::string>(0, 0), "read committed");
  must(connection.begin(soon()));
  EXPECT_EQ(must(connection.exec(kIsolation, {}, soon())).get<std::string>(0, 0), "read committed");
}

TEST_F(UnitTest, a_deadline_that_has_passed_sends_nothing) {
  const auto late =
      connection_.exec(kInsert, Params{}.add(1), Deadline::clock::now() - std::chrono::seconds{1});
  EXPECT_EQ(late.error().code, Errc::deadline_exceeded);
  EXPECT_EQ(count(), 0);
}

TEST_F(UnitTest, waits_in_a_transaction_no_longer_than_the_deadline) {
  Connection holder = database_.connect();
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  must(holder.begin(soon()));
  must(holder.exec({"", "SELECT FROM t WHERE id = 1 FOR UPDATE"}, {}, soon()));
  must(connection_.begin(soon()));

  const auto late = connection_.exec({"", "UPDATE t SET body = 'late' WHERE id = 1"}, {},
                                     Deadline::clock::now() + std::chrono::milliseconds{50});

  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Errc::deadline_exceeded);
  EXPECT_FALSE(connection_.usable());
}

TEST_F(UnitTest, a_unit_whose_commit_was_sent_is_unknown_at_the_deadline) {
  Connection holder = database_.connect();
  must(connection_.exec(kInsert, Params{}.add(1), soon()));
  must(holder.begin(soon()));
  must(holder.exec({"", "SELECT FROM t WHERE id = 1 FOR UPDATE"}, {}, soon()));

  const auto late = connection_.exec({"", "UPDATE t SET body = 'late' WHERE id = 1"}, {},
                                     Deadline::clock::now() + std::chrono::seconds{1});

  EXPECT_EQ(late.error().code, Errc::outcome_unknown);
  EXPECT_FALSE(connection_.usable());
}

TEST_F(UnitTest, an_empty_unit_is_nothing) { EXPECT_TRUE(must(connection_.run(Unit{}, soon())).empty()); }

TEST_F(UnitTest, copy_in_a_unit_is_an_error) {
  EXPECT_EQ(connection_.exec({"", "COPY t FROM STDIN"}, {}, soon()).error().code, Errc::server);
}

TEST_F(UnitTest, a_script_is_one_transaction) {
  EXPECT_EQ(
      connection_.exec_script("INSERT INTO t VALUES (1); SELECT 1 / 0; INSERT INTO t VALUES (2)", soon())
          .error()
          .sqlstate,
      "22012");
  EXPECT_EQ(count(), 0);
  must(connection_.exec_script("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);", soon()));
  EXPECT_EQ(count(), 2);
}

}  // namespace
}  // namespace faultline::pg
