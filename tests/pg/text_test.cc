// A user's SQL: parameters and results as text, and transactions that begin with their first statements.

#include <thread>

#include <gtest/gtest.h>

#include "base/interrupt.h"
#include "pg/pool.h"
#include "pg/wire_proxy.h"
#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;
using Texts = std::vector<std::optional<std::string>>;

class TextTest : public ::testing::Test {
 protected:
  TestDatabase database_{Template::empty};
  Connection connection_ = database_.connect();
};

TEST_F(TextTest, parameters_take_the_types_that_the_statement_asks_for) {
  const auto rows = must(connection_.exec_text("SELECT $1::int + 1, $2 || 'x', $3::date + 1, $4::int IS NULL",
                                               Texts{"41", "é", "2024-02-28", std::nullopt}, soon()));
  EXPECT_EQ(rows.text(0, 0), "42");
  EXPECT_EQ(rows.text(0, 1), "éx");
  EXPECT_EQ(rows.text(0, 2), "2024-02-29");
  EXPECT_EQ(rows.text(0, 3), "t");
  EXPECT_EQ(must(connection_.exec_text("SELECT NULL", {}, soon())).text(0, 0), std::nullopt);
}

TEST_F(TextTest, runs_in_the_open_transaction_or_in_one_of_its_own) {
  must(connection_.exec_text("CREATE TABLE t (i int)", {}, soon()));
  must(connection_.begin(soon()));
  EXPECT_EQ(must(connection_.exec_text("INSERT INTO t VALUES (1), (2)", {}, soon())).affected(), 2);
  connection_.rollback(soon());
  EXPECT_EQ(must(connection_.exec_text("SELECT count(*) FROM t", {}, soon())).text(0, 0), "0");
}

TEST_F(TextTest, an_error_has_its_sqlstate_and_fails_the_transaction) {
  must(connection_.begin(soon()));
  EXPECT_FALSE(connection_.transaction_failed());
  EXPECT_EQ(connection_.exec_text("SELECT 1 / $1", Texts{"0"}, soon()).error().sqlstate, "22012");
  EXPECT_TRUE(connection_.transaction_failed());
  connection_.rollback(soon());
  EXPECT_TRUE(connection_.idle());
}

TEST_F(TextTest, one_statement_at_a_time) {
  EXPECT_EQ(connection_.exec_text("SELECT 1; SELECT 2", {}, soon()).error().sqlstate, "42601");
}

TEST_F(TextTest, a_transaction_begins_with_its_first_statements) {
  Unit first;
  first.add({"answer", "SELECT 42"}, {}).add({"", "SELECT $1::text"}, Params{}.add("x"));
  for (int i = 0; i < 2; ++i) {
    const auto results = must(connection_.begin(first, soon()));
    EXPECT_EQ(results.at(0).get<std::int32_t>(0, 0), 42);
    EXPECT_EQ(results.at(1).get<std::string>(0, 0), "x");
    EXPECT_TRUE(connection_.in_transaction());
    must(connection_.commit(soon()));
  }
}

TEST_F(TextTest, a_transaction_whose_first_statements_fail_is_not_open) {
  EXPECT_EQ(connection_.begin(Unit{}.add({"", "SELECT 1 / 0"}, {}), soon()).error().sqlstate, "22012");
  EXPECT_TRUE(connection_.idle());
  must(connection_.exec_script("PREPARE answer AS SELECT 1", soon()));
  const Unit first = Unit{}.add({"answer", "SELECT 42"}, {});
  EXPECT_EQ(connection_.begin(first, soon()).error().sqlstate, "42P05");
  EXPECT_EQ(must(connection_.begin(first, soon())).at(0).get<std::int32_t>(0, 0), 42)
      << "it is prepared anew";
}

TEST_F(TextTest, an_interrupt_ends_every_wait_as_its_deadline_would) {
  Interrupt interrupt;
  EXPECT_FALSE(interrupt.fired());
  auto waiting = must(Connection::open({.dsn = database_.dsn(), .interrupt_fd = interrupt.fd()}, soon()));
  must(waiting.listen("c", soon()));
  std::jthread other{[&] { interrupt.fire(); }};

  EXPECT_TRUE(must(waiting.wait_for_notifications(Deadline::max())).empty());

  EXPECT_TRUE(interrupt.wait(Deadline::max()));
  EXPECT_EQ(waiting.exec({"", "SELECT pg_sleep(600)"}, {}, Deadline::max()).error().code,
            Errc::outcome_unknown);
  testing::WireProxy silent{database_.dsn()};
  silent.stall();
  EXPECT_EQ(
      Connection::open({.dsn = silent.dsn(), .interrupt_fd = interrupt.fd()}, Deadline::max()).error().code,
      Errc::cannot_connect);
}

}  // namespace
}  // namespace faultline::pg
