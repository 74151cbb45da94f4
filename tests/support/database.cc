#include "support/database.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <set>
#include <stdexcept>

#include "drills/movable_clock.h"
#include "schema/migrator.h"
#include "sql/functions.h"
#include "sql/migrations.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDatabasePrefix = "test_";
constexpr std::string_view kTemplatePrefix = "template_";

std::string hex_hash(std::string_view text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  std::array<char, 16> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  return {digits.data(), end};
}

/// One per build directory and PostgreSQL. Not in the build directory: a checkout in root's home is closed to
/// the user that the server runs as.
fs::path server_directory() {
  const char* chosen = std::getenv("FAULTLINE_PG_BINDIR");
  const std::string whose = std::string{FAULTLINE_BUILD_DIR} + (chosen != nullptr ? chosen : "");
  return scratch_root() / ("faultline-test-" + std::to_string(::geteuid()) + "-" + hex_hash(whose));
}

bool database_exists(pg::Connection& admin, const std::string& name) {
  constexpr pg::Statement kFind{"test_find_database",
                                "SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1"};
  return must(admin.exec(kFind, pg::Params{}.add(name), soon())).rows() > 0;
}

void run(pg::Connection& connection, const std::string& sql) { must(connection.exec_script(sql, soon())); }

/// What is in a template, in short.
std::string fingerprint(Template kind) {
  std::string all;
  if (kind == Template::clocked) all = drills::MovableClock::kInstall;
  for (const auto& migration : sql::kMigrations)
    all.append(migration.name).append("\n").append(migration.sql);
  for (const auto& function : sql::kFunctions) all.append(function.name).append("\n").append(function.sql);
  return hex_hash(all);
}

std::string template_name(Template kind) { return std::string{kTemplatePrefix} + fingerprint(kind); }

void fill(const std::string& dsn, Template kind) {
  auto connection = connect(dsn);
  must(schema::migrate(connection, schema::MigrateOptions{}, soon()));
  if (kind == Template::clocked) run(connection, std::string{drills::MovableClock::kInstall});
}

fs::path provided_server() { return server_directory() += "-provided"; }

}  // namespace

Deadline soon() { return std::chrono::steady_clock::now() + std::chrono::seconds{60}; }

pg::Connection connect(const std::string& dsn) {
  pg::ConnectOptions options;
  options.dsn = dsn;
  options.application_name = "faultline-test";
  return must(pg::Connection::open(options, soon()));
}

std::string query_text(pg::Connection& connection, std::string_view sql) {
  const auto result = must(connection.exec(pg::Statement{"", sql}, pg::Params{}, soon()));
  return result.get<std::string>(0, 0);
}

PrivatePostgresOptions TestServer::options() {
  PrivatePostgresOptions options;
  options.data_dir = server_directory();
  options.database = "postgres";
  options.durable = false;
  // Every copied and every dropped database looks through all buffers, several times.
  options.settings = {{"max_connections", "300"}, {"shared_buffers", "64MB"}};
  return options;
}

TestServer::TestServer() : server_(must(PrivatePostgres::start(options()))), keeper_(admin()) {}

TestServer& TestServer::instance() {
  static TestServer server;
  return server;
}

const std::string& TestServer::template_for(Template kind) {
  const std::lock_guard lock{mutex_};
  std::string& name = templates_[kind];
  if (name.empty()) name = kind == Template::empty ? "template0" : make_template(kind);
  return name;
}

std::string TestServer::make_template(Template kind) const {
  const std::string name = template_name(kind);
  auto admin_connection = admin();
  if (database_exists(admin_connection, name)) return name;
  // A session lock: it goes with the connection, so a maker that dies does not block the next one.
  run(admin_connection, "SELECT pg_catalog.pg_advisory_lock(7105201)");
  if (database_exists(admin_connection, name)) return name;
  const std::string draft = name + "_draft";
  if (database_exists(admin_connection, draft))
    run(admin_connection, "DROP DATABASE " + draft + " WITH (FORCE)");
  run(admin_connection, "CREATE DATABASE " + draft);
  fill(dsn_for(draft), kind);
  // Nobody can connect to it, so copying it never fails for being in use.
  run(admin_connection, "ALTER DATABASE " + draft + " ALLOW_CONNECTIONS false");
  run(admin_connection, "ALTER DATABASE " + draft + " RENAME TO " + name);
  return name;
}

void TestServer::copy_database(const std::string& source, const std::string& name) {
  const std::lock_guard lock{mutex_};
  // An earlier process with our number may have died before it dropped its own.
  if (database_exists(keeper_, name)) run(keeper_, "DROP DATABASE " + name + " WITH (FORCE)");
  // Copying the files takes a tenth of the time that writing them through the log takes. It is how every
  // server before 15 does it, and those have no word for it.
  const bool has_strategies = query_text(keeper_, "SHOW server_version_num") >= "150000";
  run(keeper_,
      "CREATE DATABASE " + name + " TEMPLATE " + source + (has_strategies ? " STRATEGY file_copy" : ""));
}

void TestServer::drop_database(const std::string& name) {
  const std::lock_guard lock{mutex_};
  run(keeper_, "DROP DATABASE " + name + " WITH (FORCE)");
}

void TestServer::drop_orphaned_databases() {
  constexpr pg::Statement kList{
      "test_list_databases", "SELECT datname::text FROM pg_catalog.pg_database WHERE datname LIKE 'te%\\_%'"};
  const std::set<std::string> wanted{template_name(Template::migrated), template_name(Template::clocked)};
  auto admin_connection = admin();
  const auto found = must(admin_connection.exec(kList, pg::Params{}, soon()));
  for (int row = 0; row < found.rows(); ++row) {
    const auto name = found.get<std::string>(row, 0);
    if (name.starts_with(kTemplatePrefix)) {  // of another schema
      if (!wanted.contains(name)) run(admin_connection, "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)");
      continue;
    }
    pid_t owner = 0;
    std::from_chars(name.data() + kDatabasePrefix.size(), name.data() + name.size(), owner);
    if (owner > 0 && ::kill(owner, 0) != 0)
      run(admin_connection, "DROP DATABASE IF EXISTS " + name + " WITH (FORCE)");
  }
}

void provide_private_server(const fs::path& data_dir) {
  const fs::path made = provided_server();
  if (!fs::exists(made)) {
    const fs::path draft = made.string() + "-" + std::to_string(::getpid());
    must(must(PrivatePostgres::start({.data_dir = draft, .durable = false})).stop());
    fs::remove(draft / "server.log");
    std::error_code somebody_was_first;
    fs::rename(draft, made, somebody_was_first);
    if (somebody_was_first) fs::remove_all(draft);
  }
  if (data_dir.has_parent_path()) fs::create_directories(data_dir.parent_path());
  // With its owners: the server's files are its user's.
  const auto copied = run_process({.argv = {"cp", "--archive", made.string(), data_dir.string()}});
  if (copied.exit_code != 0) throw std::runtime_error("no copy of a server: " + copied.err);
}

PrivatePostgres start_provided_server(const PrivatePostgresOptions& options) {
  provide_private_server(options.data_dir);
  return must(PrivatePostgres::start(options));
}

void forget_provided_server() { fs::remove_all(provided_server()); }

TestDatabase::TestDatabase(Template from) : TestDatabase(TestServer::instance().template_for(from)) {}

TestDatabase::TestDatabase(const std::string& source) {
  static std::atomic<int> count{0};
  name_ = std::string{kDatabasePrefix} + std::to_string(::getpid()) + "_" + std::to_string(++count);
  TestServer::instance().copy_database(source, name_);
}

TestDatabase::~TestDatabase() {
  try {
    TestServer::instance().drop_database(name_);
  } catch (const std::exception& error) {
    std::cerr << "the test database " << name_ << " was not dropped: " << error.what() << '\n';
  }
}

std::string TestDatabase::dsn() const { return TestServer::instance().dsn_for(name_); }

std::string TestDatabase::dsn_as(std::string_view role) const {
  std::string dsn = this->dsn();
  const auto user = dsn.rfind("user=");
  return dsn.substr(0, user) + "user=" + std::string{role};
}

}  // namespace faultline::testing
