#include <gtest/gtest.h>

#include "support/database.h"
#include "support/pgbouncer.h"

namespace faultline::pg {
namespace {

using testing::must;
using testing::PgBouncer;
using testing::soon;
using testing::Template;
using testing::TestDatabase;

class PoolerTest : public ::testing::Test {
 protected:
  PoolerTest() { must(direct_.exec_script("CREATE TABLE t (id int PRIMARY KEY)", soon())); }

  [[nodiscard]] std::string dsn() const { return bouncer_.dsn(); }

  [[nodiscard]] Connection client(const std::string& lock_timeout) const {
    return must(Connection::open({.dsn = dsn(), .settings = {{"lock_timeout", lock_timeout}}}, soon()));
  }

  static std::string lock_timeout(Connection& connection) {
    constexpr Statement kSetting{"setting", "SELECT current_setting('lock_timeout')"};
    return must(connection.exec(kSetting, {}, soon())).get<std::string>(0, 0);
  }

  std::int64_t rows() { return must(direct_.exec({"", "SELECT FROM t"}, {}, soon())).rows(); }

  TestDatabase database_{Template::empty};
  Connection direct_ = database_.connect();
  PgBouncer bouncer_{database_.dsn()};
};

constexpr Statement kInsert{"insert", "INSERT INTO t VALUES ($1)"};

TEST_F(PoolerTest, is_noticed) {
  EXPECT_TRUE(client("1s").behind_pooler());
  EXPECT_FALSE(direct_.behind_pooler());
}

TEST_F(PoolerTest, every_unit_runs_with_its_clients_settings_and_leaves_none_behind) {
  Connection one = client("111ms");
  Connection two = client("222ms");
  Connection plain = must(Connection::open({.dsn = dsn()}, soon()));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(lock_timeout(one), "111ms");
    EXPECT_EQ(lock_timeout(plain), "0");
    EXPECT_EQ(lock_timeout(two), "222ms");
  }
  must(one.begin(soon()));
  EXPECT_EQ(lock_timeout(one), "111ms");
  must(one.commit(soon()));
  EXPECT_EQ(lock_timeout(plain), "0");
}

TEST_F(PoolerTest, clients_take_turns_on_one_server_connection) {
  Connection one = client("1s");
  Connection two = client("1s");
  constexpr Statement kPid{"pid", "SELECT pg_backend_pid()"};
  const int pid = must(one.exec(kPid, {}, soon())).get<int>(0, 0);
  EXPECT_EQ(must(two.exec(kPid, {}, soon())).get<int>(0, 0), pid);
  EXPECT_EQ(must(one.exec({"", "SELECT FROM pg_prepared_statements"}, {}, soon())).rows(), 0);
}

TEST_F(PoolerTest, a_unit_is_atomic_and_an_error_gives_the_server_connection_back) {
  Connection one = client("1s");
  Connection two = client("1s");
  Unit unit;
  unit.add(kInsert, Params{}.add(1)).add(kInsert, Params{}.add(1));

  EXPECT_EQ(one.run(unit, soon()).error().code, Errc::unique_violation);

  EXPECT_FALSE(one.in_transaction());
  EXPECT_EQ(rows(), 0);
  must(two.exec(kInsert, Params{}.add(2), soon()));
  must(one.exec(kInsert, Params{}.add(3), soon()));
  EXPECT_EQ(rows(), 2);
}

TEST_F(PoolerTest, copies_in_a_transaction_with_its_settings) {
  Connection one = client("1s");
  const auto row = [](std::string& buffer) {
    buffer = "7\n";
    return false;
  };
  EXPECT_EQ(must(one.copy_in("COPY t FROM STDIN", row, soon())), 1);
  EXPECT_EQ(one.copy_in("COPY t FROM STDIN", row, soon()).error().code, Errc::unique_violation);
  EXPECT_FALSE(one.in_transaction());
  EXPECT_EQ(rows(), 1);
}

TEST_F(PoolerTest, listening_is_refused) { EXPECT_FALSE(client("1s").listen("channel", soon()).has_value()); }

}  // namespace
}  // namespace faultline::pg
