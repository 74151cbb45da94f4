#include <filesystem>

#include <gtest/gtest.h>
#include <libpq-fe.h>

#include "pg/dsn_parts.h"
#include "pg/wire_proxy.h"
#include "support/database.h"

namespace faultline::pg {
namespace {

using testing::DsnParts;
using testing::must;
using testing::soon;
using testing::Template;
using testing::TestDatabase;
using testing::WireProxy;

std::string setting(Connection& connection, std::string_view name) {
  return must(connection.exec({"", "SELECT current_setting($1)"}, Params{}.add(name), soon()))
      .get<std::string>(0, 0);
}

class ConnectTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string with(const std::string& keyword, const std::string& value) const {
    DsnParts parts{database_.dsn()};
    parts[keyword] = value;
    return parts.dsn();
  }
  /// The server as the second of two hosts.
  [[nodiscard]] std::string after(const std::string& first_host, const std::string& first_port) const {
    DsnParts parts{database_.dsn()};
    parts["host"] = first_host + "," + parts["host"];
    parts["port"] = first_port + "," + parts.get("port", "5432");
    return parts.dsn();
  }

  TestDatabase database_{Template::empty};
};

TEST_F(ConnectTest, knows_its_backend) {
  Connection connection = database_.connect();
  EXPECT_TRUE(connection.usable());
  EXPECT_FALSE(connection.behind_pooler());
  EXPECT_GE(connection.server_version(), 150000);
  EXPECT_EQ(must(connection.exec({"", "SELECT pg_backend_pid()"}, {}, soon())).get<int>(0, 0),
            connection.backend_pid());
}

TEST_F(ConnectTest, names_itself_unless_the_dsn_does) {
  Connection unnamed = must(Connection::open({.dsn = database_.dsn(), .application_name = "ours"}, soon()));
  EXPECT_EQ(setting(unnamed, "application_name"), "ours");
  Connection named =
      must(Connection::open({.dsn = with("application_name", "theirs"), .application_name = "ours"}, soon()));
  EXPECT_EQ(setting(named, "application_name"), "theirs");
  EXPECT_EQ(setting(named, "client_encoding"), "UTF8");
}

TEST_F(ConnectTest, runs_everything_with_its_settings) {
  Connection connection = must(
      Connection::open({.dsn = database_.dsn(),
                        .settings = {{"plan_cache_mode", "force_generic_plan"}, {"lock_timeout", "1234"}}},
                       soon()));
  EXPECT_EQ(setting(connection, "plan_cache_mode"), "force_generic_plan");
  EXPECT_EQ(setting(connection, "lock_timeout"), "1234ms");
}

TEST_F(ConnectTest, a_setting_that_does_not_exist_is_an_error) {
  const auto refused =
      Connection::open({.dsn = database_.dsn(), .settings = {{"no_such_setting", "1"}}}, soon());
  EXPECT_EQ(refused.error().code, Errc::undefined_object);
}

TEST_F(ConnectTest, goes_to_the_next_host_when_the_first_is_dead) {
  Connection connection = must(Connection::open({.dsn = after("/nonexistent", "5432")}, soon()));
  EXPECT_EQ(setting(connection, "application_name"), "faultline");
}

TEST_F(ConnectTest, a_first_host_that_never_answers_does_not_use_up_the_deadline) {
  WireProxy hung{database_.dsn()};
  hung.stall();
  DsnParts hung_parts{hung.dsn()};
  const std::string dsn = after(hung_parts["host"], hung_parts["port"]);
  EXPECT_TRUE(Connection::open({.dsn = dsn, .connect_timeout = std::chrono::seconds{5}}, soon()).has_value());
  EXPECT_TRUE(Connection::open({.dsn = dsn}, Deadline::clock::now() + std::chrono::seconds{12}).has_value());
}

TEST_F(ConnectTest, a_single_host_that_never_answers_fails_at_the_deadline) {
  WireProxy hung{database_.dsn()};
  hung.stall();
  const auto failed =
      Connection::open({.dsn = hung.dsn()}, Deadline::clock::now() + std::chrono::milliseconds{50});
  EXPECT_EQ(failed.error().code, Errc::cannot_connect);
}

TEST_F(ConnectTest, of_several_hosts_only_a_read_write_one_will_do_unless_the_dsn_says_otherwise) {
  Connection admin = database_.connect();
  must(admin.exec_script("ALTER DATABASE " + database_.name() + " SET default_transaction_read_only = on",
                         soon()));
  EXPECT_EQ(Connection::open({.dsn = after("/nonexistent", "5432")}, soon()).error().code,
            Errc::cannot_connect);
  DsnParts any{after("/nonexistent", "5432")};
  any["target_session_attrs"] = "any";
  EXPECT_TRUE(Connection::open({.dsn = any.dsn()}, soon()).has_value());
  any["target_session_attrs"] = "prefer-standby";
  EXPECT_TRUE(Connection::open({.dsn = any.dsn()}, soon()).has_value());
  EXPECT_TRUE(Connection::open({.dsn = database_.dsn()}, soon()).has_value());
}

TEST_F(ConnectTest, tells_a_refusal_that_lasts_from_one_that_may_pass) {
  const auto no_database = Connection::open({.dsn = with("dbname", "no_such_database")}, soon());
  EXPECT_EQ(no_database.error().code, Errc::cannot_connect);
  EXPECT_EQ(no_database.error().sqlstate, "3D000");
  EXPECT_FALSE(no_database.error().retryable());
  const auto no_server = Connection::open({.dsn = with("host", "/nonexistent")}, soon());
  EXPECT_EQ(no_server.error().code, Errc::cannot_connect);
  EXPECT_TRUE(no_server.error().retryable());
}

TEST_F(ConnectTest, no_error_shows_the_password) {
  DsnParts wrong_user{with("password", "s3cret")};
  wrong_user["user"] = "no_such_role";
  for (const std::string& dsn :
       {wrong_user.dsn(), std::string{"postgresql://me:s3cret@/db?host=/nonexistent"},
        std::string{"password=s3cret nonsense"}, std::string{"postgresql://me:p@s3cret@127.0.0.1:1/db"},
        std::string{"postgresql://me:s3cret@127.0.0.1:port/db"},
        std::string{"host=127.0.0.1 port=1 password=s3cret"}}) {
    const auto failed = Connection::open({.dsn = dsn}, soon());
    ASSERT_FALSE(failed.has_value());
    EXPECT_EQ(failed.error().describe().find("s3cret"), std::string::npos) << failed.error().describe();
    EXPECT_FALSE(failed.error().message.empty());
  }
}

TEST_F(ConnectTest, notices_are_never_printed) {
  Connection connection = database_.connect();
  ::testing::internal::CaptureStderr();
  must(connection.exec_script("DO $$ BEGIN RAISE NOTICE 'n'; RAISE WARNING 'w'; END $$; COMMIT", soon()));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

/// A connection that the test owns, as a program would its own.
class BorrowTest : public ConnectTest {
 protected:
  BorrowTest() { plain("CREATE TABLE t (id int PRIMARY KEY)"); }
  ~BorrowTest() override { PQfinish(raw_); }

  void plain(const char* sql) {
    PGresult* result = PQexec(raw_, sql);
    EXPECT_EQ(std::string{PQresultErrorMessage(result)}, "");
    PQclear(result);
  }
  void expect_as_found() {
    EXPECT_EQ(PQisnonblocking(raw_), 0);
    EXPECT_EQ(PQpipelineStatus(raw_), PQ_PIPELINE_OFF);
  }
  std::int64_t rows() {
    Connection other = database_.connect();
    return must(other.exec({"", "SELECT count(*) FROM t"}, {}, soon())).get<std::int64_t>(0, 0);
  }

  PGconn* raw_ = PQconnectdb(database_.dsn().c_str());
  static constexpr Statement kInsert{"insert", "INSERT INTO t VALUES ($1)"};
};

TEST_F(BorrowTest, works_inside_the_callers_transaction) {
  plain("BEGIN");
  Connection borrowed = Connection::borrow(raw_);
  EXPECT_TRUE(borrowed.in_transaction());
  must(borrowed.exec(kInsert, Params{}.add(1), soon()));
  expect_as_found();
  EXPECT_EQ(PQtransactionStatus(raw_), PQTRANS_INTRANS);
  EXPECT_EQ(rows(), 0);
  plain("COMMIT");
  EXPECT_EQ(rows(), 1);
}

TEST_F(BorrowTest, leaves_the_connection_open_as_found_and_nothing_prepared) {
  {
    Connection borrowed = Connection::borrow(raw_);
    Unit unit;
    unit.add(kInsert, Params{}.add(1)).add(kInsert, Params{}.add(1));
    EXPECT_EQ(borrowed.run(unit, soon()).error().code, Errc::unique_violation);
    must(borrowed.exec(kInsert, Params{}.add(2), soon()));
    must(borrowed.copy_in(
        "COPY t FROM STDIN",
        [](std::string& buffer) {
          buffer = "3\n";
          return false;
        },
        soon()));
    EXPECT_EQ(must(borrowed.exec({"", "SELECT FROM pg_prepared_statements"}, {}, soon())).rows(), 0);
  }
  expect_as_found();
  plain("SELECT 1");
  EXPECT_EQ(rows(), 2);
}

TEST_F(BorrowTest, an_error_leaves_the_callers_transaction_failed_and_open) {
  plain("BEGIN");
  Connection borrowed = Connection::borrow(raw_);
  EXPECT_FALSE(borrowed.exec({"", "SELECT 1 / 0"}, {}, soon()).has_value());
  EXPECT_EQ(PQtransactionStatus(raw_), PQTRANS_INERROR);
  plain("ROLLBACK");
  expect_as_found();
}

}  // namespace
}  // namespace faultline::pg
