#include <latch>
#include <thread>

#include <gtest/gtest.h>

#include "pg/retry.h"
#include "support/database.h"
#include "support/process.h"

namespace faultline::pg {
namespace {

using testing::eventually;
using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

class ErrorTest : public ::testing::Test {
 protected:
  Error failure_of(const std::string& sql) {
    auto done = connection_.exec({"", sql}, {}, soon());
    if (done) throw std::runtime_error("did not fail: " + sql);
    return done.error();
  }

  /// Whether a backend waits for a lock.
  bool waits(int pid) {
    constexpr Statement kWaits{"waits", "SELECT count(*) FROM pg_locks WHERE pid = $1 AND NOT granted"};
    return must(connection_.exec(kWaits, Params{}.add(pid), soon())).get<std::int64_t>(0, 0) > 0;
  }

  TestDatabase database_{Template::empty};
  Connection connection_ = database_.connect();
};

TEST_F(ErrorTest, errors_of_the_server_have_the_code_a_caller_reacts_to) {
  must(
      connection_.exec_script("CREATE TABLE t (id int PRIMARY KEY CHECK (id < 100), other int NOT NULL "
                              "DEFAULT 0 REFERENCES t DEFERRABLE);"
                              "INSERT INTO t VALUES (0, 0); CREATE ROLE " +
                                  database_.name() + "_nobody",
                              soon()));
  EXPECT_EQ(failure_of("INSERT INTO t VALUES (0)").code, Errc::unique_violation);
  EXPECT_EQ(failure_of("INSERT INTO t VALUES (100)").code, Errc::check_violation);
  EXPECT_EQ(failure_of("INSERT INTO t VALUES (1, NULL)").code, Errc::check_violation);
  EXPECT_EQ(failure_of("INSERT INTO t VALUES (1, 50)").code, Errc::check_violation);
  EXPECT_EQ(failure_of("SELECT 70000::int2").sqlstate, "22003");
  EXPECT_EQ(failure_of("SELECT 70000::int2").code, Errc::invalid_value);
  EXPECT_EQ(failure_of("SELECT '{'::jsonb").code, Errc::invalid_value);
  EXPECT_EQ(failure_of("SELECT E'\\xff'").code, Errc::invalid_value);
  EXPECT_EQ(failure_of("SELECT * FROM nowhere").code, Errc::undefined_object);
  EXPECT_EQ(failure_of("SELECT no_function()").code, Errc::undefined_object);
  EXPECT_EQ(failure_of("SELECT no_column FROM t").code, Errc::undefined_object);
  EXPECT_EQ(failure_of("SELECT 1 FROM no_schema.t").code, Errc::undefined_object);
  EXPECT_EQ(failure_of("SYNTAX").code, Errc::server);
  EXPECT_EQ(failure_of("DO $$ BEGIN RAISE EXCEPTION 'token spent' USING ERRCODE = 'FL001', DETAIL = 'd', "
                       "HINT = 'h'; END $$")
                .code,
            Errc::raised);
  must(connection_.exec_script("SET statement_timeout = 10", soon()));
  EXPECT_EQ(failure_of("SELECT pg_sleep(60)").code, Errc::query_canceled);
  must(connection_.exec_script("SET statement_timeout = 0; SET default_transaction_read_only = on", soon()));
  EXPECT_EQ(failure_of("INSERT INTO t VALUES (3)").code, Errc::read_only);
  must(connection_.exec_script(
      "SET default_transaction_read_only = off; SET ROLE " + database_.name() + "_nobody", soon()));
  EXPECT_EQ(failure_of("SELECT * FROM t").code, Errc::insufficient_privilege);
  must(connection_.exec_script("RESET ROLE; DROP ROLE " + database_.name() + "_nobody", soon()));
}

TEST_F(ErrorTest, says_everything_on_one_line) {
  const Error error = failure_of(
      "DO $$ BEGIN RAISE EXCEPTION E'token\\nspent' USING ERRCODE = 'FL001', DETAIL = 'd', HINT = 'h'; END "
      "$$");
  EXPECT_EQ(error.describe(), "token spent; d; hint: h [FL001]");
}

TEST_F(ErrorTest, a_lock_that_is_held_is_not_available) {
  must(connection_.exec_script("CREATE TABLE t (id int); INSERT INTO t VALUES (1)", soon()));
  Connection holder = database_.connect();
  must(holder.begin(soon()));
  must(holder.exec({"", "SELECT * FROM t FOR UPDATE"}, {}, soon()));
  EXPECT_EQ(failure_of("SELECT * FROM t FOR UPDATE NOWAIT").code, Errc::lock_not_available);
  must(connection_.exec_script("SET lock_timeout = 10", soon()));
  EXPECT_EQ(failure_of("UPDATE t SET id = 2").code, Errc::lock_not_available);
}

TEST_F(ErrorTest, a_serialization_failure_is_retryable) {
  must(connection_.exec_script("CREATE TABLE t (id int); INSERT INTO t VALUES (1)", soon()));
  Connection other = database_.connect();
  must(connection_.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t", soon()));
  must(other.exec({"", "UPDATE t SET id = 2"}, {}, soon()));
  const Error error = failure_of("UPDATE t SET id = 3");
  EXPECT_EQ(error.code, Errc::serialization_failure);
  EXPECT_TRUE(error.retryable());
  EXPECT_FALSE(error.connection_is_gone());
}

TEST_F(ErrorTest, one_of_two_deadlocked_transactions_gets_a_retryable_error) {
  must(connection_.exec_script(
      "CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO t VALUES (1), (2)", soon()));
  constexpr Statement kBump{"bump", "UPDATE t SET n = n + 1 WHERE id = $1"};
  Connection first = database_.connect();
  Connection second = database_.connect();
  for (Connection* connection : {&first, &second}) must(connection->begin(soon()));
  must(first.exec(kBump, Params{}.add(1), soon()));
  must(second.exec(kBump, Params{}.add(2), soon()));
  Expected<Result> first_result;
  {
    std::jthread blocked{[&] { first_result = first.exec(kBump, Params{}.add(2), soon()); }};
    ASSERT_TRUE(eventually([&] { return waits(first.backend_pid()); }));
    const auto second_result = second.exec(kBump, Params{}.add(1), soon());
    second.rollback(soon());
    if (!second_result) {
      EXPECT_EQ(second_result.error().code, Errc::deadlock_detected);
      EXPECT_TRUE(second_result.error().retryable());
      return;
    }
  }
  ASSERT_FALSE(first_result.has_value());
  EXPECT_EQ(first_result.error().code, Errc::deadlock_detected);
}

TEST(SqlstateTest, classes_stand_for_their_members) {
  EXPECT_EQ(classify_sqlstate("08006"), Errc::connection_lost);
  EXPECT_EQ(classify_sqlstate("57P01"), Errc::connection_lost);
  EXPECT_EQ(classify_sqlstate("57P03"), Errc::cannot_connect);
  EXPECT_EQ(classify_sqlstate("53100"), Errc::out_of_resources);
  EXPECT_EQ(classify_sqlstate("FL042"), Errc::raised);
  EXPECT_EQ(classify_sqlstate("42601"), Errc::server);
  EXPECT_EQ(classify_sqlstate(""), Errc::server);
}

Expected<int> fails_with(Errc code, int& attempts) {
  ++attempts;
  return std::unexpected(Error{.code = code});
}

constexpr RetryPolicy kQuick{
    .backoff_min = std::chrono::milliseconds{1}, .backoff_max = std::chrono::milliseconds{2}, .seed = 1};

TEST(RetryTest, repeats_what_may_succeed_until_it_does) {
  int attempts = 0;
  const auto outcome = with_retry(soon(), kQuick, [&]() -> Expected<int> {
    if (attempts < 3) return fails_with(Errc::serialization_failure, attempts);
    return 42;
  });
  EXPECT_EQ(must(outcome), 42);
  EXPECT_EQ(attempts, 3);
}

TEST(RetryTest, never_repeats_an_unknown_outcome_or_a_lasting_error) {
  for (const Errc code :
       {Errc::outcome_unknown, Errc::unique_violation, Errc::deadline_exceeded, Errc::lock_not_available}) {
    int attempts = 0;
    EXPECT_EQ(with_retry(soon(), kQuick, [&] { return fails_with(code, attempts); }).error().code, code);
    EXPECT_EQ(attempts, 1);
  }
}

TEST(RetryTest, gives_the_last_error_when_the_deadline_is_near) {
  int attempts = 0;
  const auto outcome = with_retry(Deadline::clock::now() + std::chrono::milliseconds{20}, kQuick,
                                  [&] { return fails_with(Errc::connection_lost, attempts); });
  EXPECT_EQ(outcome.error().code, Errc::connection_lost);
  EXPECT_GE(attempts, 1);
}

TEST(BackoffTest, waits_grow_to_the_maximum_and_are_spread_by_the_seed) {
  Backoff one{std::chrono::milliseconds{10}, std::chrono::milliseconds{80}, 1};
  Backoff same{std::chrono::milliseconds{10}, std::chrono::milliseconds{80}, 1};
  Backoff other{std::chrono::milliseconds{10}, std::chrono::milliseconds{80}, 2};
  bool differs = false;
  bool above_the_first_ceiling = false;
  for (int ceiling : {10, 20, 40, 80, 80, 80, 80, 80}) {
    const auto wait = one.next();
    EXPECT_LE(wait.count(), ceiling);
    EXPECT_EQ(wait, same.next());
    differs = differs || wait != other.next();
    above_the_first_ceiling = above_the_first_ceiling || wait.count() > 10;
  }
  EXPECT_TRUE(differs);
  EXPECT_TRUE(above_the_first_ceiling);
}

}  // namespace
}  // namespace faultline::pg
