#pragma once

#include <expected>
#include <filesystem>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>

#include "pg/connection.h"
#include "private_pg/private_postgres.h"

namespace faultline::testing {

/// How long a test waits for what must happen, on a busy machine too.
[[nodiscard]] Deadline soon();

/// The value, or an exception with the error's text, which fails the test.
template <class T, class E>
T must(std::expected<T, E> result) {
  if (!result) throw std::runtime_error(result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

[[nodiscard]] pg::Connection connect(const std::string& dsn);
/// The first column of the first row of a query that returns text.
[[nodiscard]] std::string query_text(pg::Connection& connection, std::string_view sql);

enum class Template {
  empty,
  migrated,
  clocked,  ///< migrated, and time stands still until a MovableClock moves it
};

/// The test run's PostgreSQL server, shared by all test processes. Under ctest the fixture keeps it
/// running for the whole run; a test program that is run by hand starts it, and stops it at its end.
/// It is not durable, to be fast: a test of durability starts a PrivatePostgres of its own.
/// Its directory is in scratch_root().
class TestServer {
 public:
  [[nodiscard]] static TestServer& instance();
  [[nodiscard]] static PrivatePostgresOptions options();

  [[nodiscard]] std::string dsn_for(std::string_view database) const { return server_.dsn_for(database); }
  /// A connection to the maintenance database, as the superuser.
  [[nodiscard]] pg::Connection admin() const { return connect(dsn_for("postgres")); }
  [[nodiscard]] PrivatePostgres& server() { return server_; }

  /// The name of the database that test databases are copied from, made on first use. Its name comes from
  /// what is in it, so a server directory of an older checkout cannot serve an old schema.
  [[nodiscard]] const std::string& template_for(Template kind);
  /// On a connection that this process keeps, since to open one costs as much as a short test.
  void copy_database(const std::string& source, const std::string& name);
  void drop_database(const std::string& name);
  /// Drops the databases of test processes that died.
  void drop_orphaned_databases();

 private:
  TestServer();
  [[nodiscard]] std::string make_template(Template kind) const;

  PrivatePostgres server_;
  std::mutex mutex_;  // guards all below
  pg::Connection keeper_;
  std::map<Template, std::string> templates_;
};

/// Makes `data_dir` what it is after a private PostgreSQL was started in it for the first time and stopped: a
/// copy of one that is made once in a test run. For tests of something else than the making, which takes ten
/// times as long.
void provide_private_server(const std::filesystem::path& data_dir);
/// Starts one that was provided in the directory that the options name.
[[nodiscard]] PrivatePostgres start_provided_server(const PrivatePostgresOptions& options);
/// Forgets the one that is copied, for the next run to make it anew with its own program.
void forget_provided_server();

/// A database of this test alone, dropped at the end together with its connections.
class TestDatabase {
 public:
  explicit TestDatabase(Template from = Template::migrated);
  /// A copy of another database, to which nobody is connected.
  explicit TestDatabase(const std::string& source);
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;
  ~TestDatabase();

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string dsn() const;                          ///< as the superuser
  [[nodiscard]] std::string dsn_as(std::string_view role) const;  ///< a role that may log in
  [[nodiscard]] pg::Connection connect() const { return testing::connect(dsn()); }

 private:
  std::string name_;
};

}  // namespace faultline::testing
