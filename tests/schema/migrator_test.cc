// Migrations: from nothing, again, by many at once, under load and in the way of others.

#include "schema/migrator.h"

#include <atomic>
#include <barrier>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>

#include "faultline/schema.h"
#include "private_pg/binaries.h"
#include "sql/functions.h"
#include "sql/migrations.h"
#include "store/fixture.h"
#include "support/process.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using schema::MigrateError;
using schema::MigrateOptions;
using schema::MigrateReport;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Deadline in(milliseconds time) { return Deadline::clock::now() + time; }

std::expected<MigrateReport, MigrateError> migrate(const std::string& dsn, const MigrateOptions& options = {},
                                                   Deadline deadline = soon()) {
  auto connection = connect(dsn);
  return schema::migrate(connection, options, deadline);
}

std::int64_t number(pg::Connection& connection, std::string_view sql) {
  return must(connection.exec({"", sql}, {}, soon())).get<std::int64_t>(0, 0);
}

constexpr std::string_view kApplied = "SELECT count(*) FROM faultline.migrations";
constexpr std::string_view kObjects =
    "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = "
    "'faultline'";

std::int64_t versions() { return schema::version_of_program(); }

/// The functions of this schema, with their bodies, and what is on record of them.
std::string functions_in(pg::Connection& connection) {
  return query_text(
      connection,
      "SELECT string_agg(format('%s %s %s', p.oid::regprocedure, md5(p.prosrc), f.checksum), E'\\n' ORDER BY "
      "p.oid::regprocedure::text) FROM pg_proc p LEFT JOIN faultline.functions f ON f.name = p.proname"
      " WHERE p.pronamespace = 'faultline'::regnamespace");
}

/// Makes the last migration missing again, in a schema that is otherwise in use.
void forget_last_migration(pg::Connection& connection) {
  must(
      connection.exec_script("DROP TABLE faultline.api_keys;"
                             "DELETE FROM faultline.migrations WHERE version = " +
                                 std::to_string(versions()),
                             soon()));
}

/// pg_dump of the schema, without what names the run.
std::string schema_dump(const std::string& dsn) {
  const auto bin = must(private_pg::find_binaries(std::nullopt)).directory;
  const auto result =
      run_process({.argv = {bin / "pg_dump", "--schema-only", "--schema=faultline", "--dbname=" + dsn}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines{result.out};
  std::string dump;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("\\restrict") && !line.starts_with("\\unrestrict")) dump += line + "\n";
  }
  return dump;
}

/// A login with no rights of its own, dropped at the end.
class Login {
 public:
  explicit Login(const std::string& attributes = "") {
    static std::atomic<int> count{0};
    name_ = "migrator_login_" + std::to_string(::getpid()) + "_" + std::to_string(++count);
    must(TestServer::instance().admin().exec_script("CREATE ROLE " + name_ + " LOGIN " + attributes, soon()));
  }
  Login(const Login&) = delete;
  Login& operator=(const Login&) = delete;
  ~Login() {
    auto admin = TestServer::instance().admin();
    static_cast<void>(admin.exec_script("DROP ROLE IF EXISTS " + name_, soon()));
  }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_;
};

TEST(MigratorTest, makes_the_schema_from_nothing_and_finds_nothing_to_do_afterwards) {
  const TestDatabase database{Template::empty};
  auto connection = database.connect();

  const MigrateReport first = must(schema::migrate(connection, {}, soon()));
  const MigrateReport second = must(schema::migrate(connection, {}, soon()));

  EXPECT_EQ(first.version_before, 0);
  EXPECT_EQ(first.version_after, versions());
  ASSERT_EQ(first.applied.size(), sql::kMigrations.size());
  EXPECT_EQ(first.applied.front().version, 1);
  EXPECT_EQ(first.functions_replaced, sql::kFunctions.size());
  EXPECT_EQ(second.version_before, versions());
  EXPECT_EQ(second.version_after, versions());
  EXPECT_EQ(second.functions_replaced, 0U);
  EXPECT_THAT(second.applied, IsEmpty());
  EXPECT_EQ(number(connection, kApplied), versions());
  EXPECT_EQ(number(connection,
                   "SELECT count(*) FROM faultline.functions f JOIN pg_proc p ON p.proname = f.name"
                   " WHERE p.pronamespace = 'faultline'::regnamespace"),
            std::ssize(sql::kFunctions));
  EXPECT_TRUE(schema::check(connection, soon()).has_value());
  EXPECT_FALSE(connection.in_transaction());
}

TEST(MigratorTest, of_eight_migrators_at_once_each_migration_and_function_is_applied_by_one) {
  const TestDatabase database{Template::empty};
  constexpr int kMigrators = 8;
  std::barrier start{kMigrators};
  std::atomic<std::int64_t> applied{0};
  std::atomic<std::size_t> functions{0};
  std::array<std::string, kMigrators> problems;
  {
    std::vector<std::jthread> migrators;
    for (std::size_t i = 0; i < kMigrators; ++i) {
      migrators.emplace_back([&, i] {
        auto connection = database.connect();
        start.arrive_and_wait();
        const auto report = schema::migrate(connection, {}, soon());
        if (report) {
          applied += std::ssize(report->applied);
          functions += report->functions_replaced;
        } else {
          problems[i] = report.error().describe();
        }
      });
    }
  }

  EXPECT_THAT(problems, ::testing::Each(""));
  EXPECT_EQ(applied, versions());
  EXPECT_EQ(functions, sql::kFunctions.size());
  auto connection = database.connect();
  EXPECT_EQ(number(connection, kApplied), versions());
}

TEST(MigratorTest, a_dry_run_changes_nothing_and_its_sql_makes_the_same_schema_by_psql) {
  const TestDatabase migrated{Template::empty};
  const TestDatabase by_hand{Template::empty};
  const MigrateOptions options{.dry_run = true, .buckets = 3};
  const MigrateReport report = must(migrate(by_hand.dsn(), options));
  auto connection = by_hand.connect();
  EXPECT_EQ(number(connection, "SELECT count(*) FROM pg_namespace WHERE nspname = 'faultline'"), 0);
  EXPECT_EQ(report.version_after, 0);
  EXPECT_EQ(report.applied.size(), sql::kMigrations.size());
  EXPECT_EQ(report.functions_replaced, sql::kFunctions.size());
  for (const sql::Function& function : sql::kFunctions)
    EXPECT_THAT(report.sql, HasSubstr("FUNCTION faultline." + std::string{function.name} + "("));

  const auto psql = run_process({.argv = {must(private_pg::find_binaries(std::nullopt)).directory / "psql",
                                          "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", by_hand.dsn()},
                                 .input = report.sql});
  ASSERT_EQ(psql.exit_code, 0) << psql.err;
  must(migrate(migrated.dsn(), {.buckets = 3}));

  EXPECT_EQ(schema_dump(by_hand.dsn()), schema_dump(migrated.dsn()));
  auto other = migrated.connect();
  EXPECT_EQ(functions_in(connection), functions_in(other));
  EXPECT_EQ(number(connection, "SELECT count(*) FROM faultline.meta WHERE buckets = 3"), 3);
  EXPECT_TRUE(schema::check(connection, soon()).has_value());
  EXPECT_THAT(must(schema::migrate(connection, {}, soon())).applied, IsEmpty());
  EXPECT_THAT(must(schema::migrate(connection, options, soon())).sql, IsEmpty());
}

TEST(MigratorTest, a_newer_schema_that_does_not_serve_this_program_is_refused_everywhere) {
  const TestDatabase database;
  auto connection = database.connect();
  must(connection.exec_script(
      "INSERT INTO faultline.migrations (version, name, checksum) VALUES (9999, 'later', '');"
      "UPDATE faultline.meta SET speaks_from = 9999",
      soon()));

  const auto migrated = schema::migrate(connection, {}, soon());
  const auto planned = schema::migrate(connection, {.dry_run = true}, soon());
  const auto checked = schema::check(connection, soon());
  const auto store = Store::open({.database = database.dsn()});

  ASSERT_FALSE(migrated.has_value());
  EXPECT_EQ(migrated.error().code, MigrateError::Code::newer_schema);
  EXPECT_THAT(migrated.error().describe(), AllOf(HasSubstr("9999"), HasSubstr("use a newer faultline")));
  ASSERT_FALSE(planned.has_value());
  EXPECT_EQ(planned.error().code, MigrateError::Code::newer_schema);
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code, MigrateError::Code::newer_schema);
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::wrong_schema);
  EXPECT_THAT(store.error().describe(), AllOf(HasSubstr("9999"), HasSubstr("use a newer faultline")));
}

TEST(MigratorTest, an_older_schema_or_none_is_refused_by_the_store_with_what_to_do) {
  const TestDatabase none{Template::empty};
  const TestDatabase older;
  auto connection = older.connect();
  forget_last_migration(connection);

  for (const TestDatabase* database : {&none, &older}) {
    const auto store = Store::open({.database = database->dsn()});
    ASSERT_FALSE(store.has_value());
    EXPECT_EQ(store.error().code, ErrorCode::wrong_schema);
    EXPECT_THAT(store.error().describe(), HasSubstr("faultline migrate"));
  }
}

TEST(MigratorTest, a_migration_that_was_applied_in_another_version_of_it_is_refused) {
  const TestDatabase database;
  auto connection = database.connect();
  must(connection.exec_script("UPDATE faultline.migrations SET checksum = 'another' WHERE version = 1",
                              soon()));

  const auto migrated = schema::migrate(connection, {}, soon());
  const auto checked = schema::check(connection, soon());

  ASSERT_FALSE(migrated.has_value());
  EXPECT_EQ(migrated.error().code, MigrateError::Code::foreign_schema);
  EXPECT_THAT(migrated.error().describe(), HasSubstr("migration 1 (core)"));
  ASSERT_FALSE(checked.has_value());
  EXPECT_EQ(checked.error().code, MigrateError::Code::foreign_schema);
}

TEST(MigratorTest, a_number_of_buckets_that_cannot_be_is_refused_before_anything_is_made) {
  const TestDatabase database{Template::empty};

  for (const int buckets : {-1, 0, 4'097, 5'000}) {
    const auto result = migrate(database.dsn(), {.buckets = buckets});
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, MigrateError::Code::usage);
    EXPECT_THAT(result.error().describe(), HasSubstr("1 to 4096"));
  }
  auto connection = database.connect();
  EXPECT_EQ(number(connection, kObjects), 0);
}

TEST(MigratorTest, every_bucket_gets_its_row_and_its_default_queue_and_the_store_works_on_all) {
  const TestDatabase database{Template::empty};
  must(migrate(database.dsn(), {.buckets = 4}));
  auto connection = database.connect();

  EXPECT_EQ(
      number(connection, "SELECT count(*) FROM faultline.meta WHERE buckets = 4 AND bucket BETWEEN 0 AND 3"),
      4);
  EXPECT_EQ(number(connection, "SELECT count(DISTINCT bucket) FROM faultline.queues WHERE name = 'default'"),
            4);
  Store store = must(Store::open({.database = database.dsn()}));
  for (int i = 0; i < 8; ++i) must(store.enqueue({.kind = "test"}));
  EXPECT_EQ(number(connection, "SELECT count(DISTINCT bucket) FROM faultline.jobs WHERE queue <> ''"), 4);
  EXPECT_EQ(must(store.claim({.worker = "w", .limit = 10})).size(), 8U);
}

TEST(MigratorTest, a_migration_that_fails_leaves_nothing_of_itself_and_can_be_run_again) {
  const TestDatabase database{Template::empty};
  auto connection = database.connect();
  must(connection.exec_script("CREATE SCHEMA faultline; CREATE TABLE faultline.tallies (in_the_way integer)",
                              soon()));

  const auto first = schema::migrate(connection, {}, soon());

  ASSERT_FALSE(first.has_value());
  EXPECT_THAT(first.error().describe(), HasSubstr("tallies"));
  EXPECT_EQ(number(connection, kObjects), 1) << "only the table that was in the way";
  EXPECT_FALSE(connection.in_transaction());

  must(connection.exec_script("DROP TABLE faultline.tallies", soon()));
  EXPECT_EQ(must(schema::migrate(connection, {}, soon())).applied.size(), sql::kMigrations.size());
}

TEST(MigratorTest, migrations_before_the_one_that_fails_stay_and_are_not_run_again) {
  const TestDatabase database{Template::empty};
  auto connection = database.connect();
  must(connection.exec_script("CREATE SCHEMA faultline; CREATE TABLE faultline.api_keys (in_the_way integer)",
                              soon()));

  EXPECT_FALSE(schema::migrate(connection, {}, soon()).has_value());
  EXPECT_EQ(number(connection, kApplied), 2);
  EXPECT_EQ(number(connection, "SELECT count(*) FROM pg_proc WHERE proname = 'bucket_of_key'"), 0);

  must(connection.exec_script("DROP TABLE faultline.api_keys", soon()));
  const MigrateReport again = must(schema::migrate(connection, {}, soon()));
  ASSERT_EQ(std::ssize(again.applied), versions() - 2);
  EXPECT_EQ(again.applied.front().version, 3);
  EXPECT_EQ(again.applied.back().version, versions());
  EXPECT_EQ(again.functions_replaced, sql::kFunctions.size());
}

// ---- Functions

/// Another body of a function, as another program would have made it.
void give_another_body(pg::Connection& connection) {
  must(
      connection.exec_script("CREATE OR REPLACE FUNCTION faultline.to_ms(how_long interval) RETURNS bigint "
                             "LANGUAGE sql IMMUTABLE AS 'SELECT 7::bigint';"
                             "UPDATE faultline.functions SET checksum = 'another' WHERE name = 'to_ms'",
                             soon()));
}
constexpr std::string_view kToMs = "SELECT faultline.to_ms('1 second')";

TEST(MigratorTest, a_function_with_another_body_gets_this_programs) {
  const TestDatabase database;
  auto connection = database.connect();
  const std::string before = functions_in(connection);
  give_another_body(connection);
  ASSERT_EQ(number(connection, kToMs), 7);
  EXPECT_TRUE(Store::open({.database = database.dsn()}).has_value()) << "another body serves, too";

  const MigrateReport planned = must(schema::migrate(connection, {.dry_run = true}, soon()));
  EXPECT_EQ(planned.functions_replaced, 1U);
  EXPECT_THAT(planned.sql, HasSubstr("FUNCTION faultline.to_ms("));
  EXPECT_THAT(planned.sql, ::testing::Not(HasSubstr("FUNCTION faultline.claim_jobs(")));
  EXPECT_EQ(number(connection, kToMs), 7);

  const MigrateReport report = must(schema::migrate(connection, {}, soon()));
  EXPECT_EQ(report.functions_replaced, 1U);
  EXPECT_THAT(report.applied, IsEmpty());
  EXPECT_EQ(number(connection, kToMs), 1'000);
  EXPECT_EQ(functions_in(connection), before);
  EXPECT_EQ(must(schema::migrate(connection, {}, soon())).functions_replaced, 0U);
}

TEST(MigratorTest, a_database_that_lacks_a_function_is_refused_by_the_store_with_what_to_do) {
  const TestDatabase database;
  auto connection = database.connect();
  const std::string before = functions_in(connection);
  must(connection.exec_script(
      "DROP FUNCTION faultline.claim_jobs; DELETE FROM faultline.functions WHERE name = 'claim_jobs'",
      soon()));

  const auto store = Store::open({.database = database.dsn()});
  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::wrong_schema);
  EXPECT_THAT(store.error().describe(),
              AllOf(HasSubstr("faultline.claim_jobs"), HasSubstr("faultline migrate")));

  EXPECT_EQ(must(schema::migrate(connection, {}, soon())).functions_replaced, 1U);
  EXPECT_EQ(functions_in(connection), before);
  EXPECT_TRUE(Store::open({.database = database.dsn()}).has_value());
}

TEST(MigratorTest, a_newer_schema_that_serves_this_program_keeps_its_functions) {
  const TestDatabase database;
  auto connection = database.connect();
  give_another_body(connection);
  must(connection.exec_script(
      "INSERT INTO faultline.migrations (version, name, checksum) VALUES (9999, 'later', '')", soon()));
  const std::string before = functions_in(connection);

  const MigrateReport report = must(schema::migrate(connection, {}, soon()));

  EXPECT_EQ(report.functions_replaced, 0U);
  EXPECT_EQ(report.version_after, 9999);
  EXPECT_EQ(must(schema::migrate(connection, {.dry_run = true}, soon())).sql, "");
  EXPECT_EQ(functions_in(connection), before);
  EXPECT_TRUE(Store::open({.database = database.dsn()}).has_value());
}

TEST(MigratorTest, functions_are_replaced_all_or_none) {
  const TestDatabase database{Template::empty};
  auto connection = database.connect();
  must(connection.exec_script(
      "CREATE SCHEMA faultline;"
      "CREATE FUNCTION faultline.to_ms(how_long interval) RETURNS text LANGUAGE sql AS 'SELECT 1'",
      soon()));

  const auto first = schema::migrate(connection, {}, soon());

  ASSERT_FALSE(first.has_value());
  EXPECT_THAT(first.error().describe(), HasSubstr("return type"));
  EXPECT_EQ(number(connection, kApplied), versions());
  EXPECT_EQ(number(connection, "SELECT count(*) FROM faultline.functions"), 0);
  EXPECT_EQ(number(connection, "SELECT count(*) FROM pg_proc WHERE proname = 'claim_jobs'"), 0);
  EXPECT_FALSE(Store::open({.database = database.dsn()}).has_value());

  must(connection.exec_script("DROP FUNCTION faultline.to_ms", soon()));
  EXPECT_EQ(must(schema::migrate(connection, {}, soon())).functions_replaced, sql::kFunctions.size());
}

TEST(MigratorTest, a_table_that_stays_locked_ends_in_an_error_that_says_so) {
  const TestDatabase database;
  auto connection = database.connect();
  forget_last_migration(connection);
  auto other = database.connect();

  for (const std::string mode : {"SHARE", "ACCESS EXCLUSIVE"}) {
    must(other.exec_script("BEGIN; LOCK TABLE faultline.migrations IN " + mode + " MODE", soon()));
    const auto result = migrate(database.dsn(), {.lock_timeout = milliseconds{20}}, in(milliseconds{500}));
    must(other.exec_script("ROLLBACK", soon()));

    ASSERT_FALSE(result.has_value()) << mode;
    EXPECT_THAT(result.error().describe(),
                AllOf(HasSubstr("lock timeout"), HasSubstr("end long transactions")))
        << mode;
  }
  EXPECT_EQ(number(connection, kApplied), versions() - 1);
  EXPECT_EQ(must(migrate(database.dsn())).applied.size(), 1U);
}

/// Jobs on their way through the store, without a pause, until the end.
class Load {
 public:
  explicit Load(const std::string& dsn) : store_(must(Store::open({.database = dsn}))) {
    for (int i = 0; i < 2; ++i)
      threads_.emplace_back([this, i](const std::stop_token& stop) { run(i, stop); });
  }

  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  [[nodiscard]] bool goes_on_for(std::int64_t more) {
    const std::int64_t goal = rounds_ + more;
    return eventually([&] { return rounds_ >= goal || !error().empty(); }) && error().empty();
  }
  [[nodiscard]] std::string error() {
    const std::lock_guard lock{mutex_};
    return error_;
  }
  void stop() { threads_.clear(); }

 private:
  void run(int worker, const std::stop_token& stop) {
    try {
      while (!stop.stop_requested()) {
        must(store_.enqueue(std::vector<NewJob>(5, NewJob{.kind = "test"})));
        std::vector<Settlement> done;
        for (const ClaimedJob& job :
             must(store_.claim({.worker = "w" + std::to_string(worker), .limit = 10}))) {
          done.push_back({.lease = job.lease, .outcome = Outcome::success()});
        }
        for (const Verdict& verdict : must(store_.settle(done))) {
          if (!verdict.committed()) throw std::runtime_error("a settlement was refused");
        }
        ++rounds_;
      }
    } catch (const std::exception& problem) {
      const std::lock_guard lock{mutex_};
      error_ = problem.what();
    }
  }

  Store store_;
  std::atomic<std::int64_t> rounds_{0};
  std::mutex mutex_;
  std::string error_;  // guarded by mutex_
  std::vector<std::jthread> threads_;
};

TEST(MigratorTest, a_migration_in_the_way_of_a_long_transaction_waits_in_short_turns_while_the_load_goes_on) {
  const TestDatabase database;
  auto connection = database.connect();
  Load load{database.dsn()};
  forget_last_migration(connection);
  auto other = database.connect();
  must(other.exec_script("BEGIN; LOCK TABLE faultline.migrations IN SHARE MODE", soon()));

  std::expected<MigrateReport, MigrateError> report;
  std::atomic<bool> ended{false};
  std::jthread migrator{[&] {
    report = migrate(database.dsn(), {.lock_timeout = milliseconds{50}});
    ended = true;
  }};
  constexpr std::string_view kWaiting =
      "SELECT l.virtualtransaction FROM pg_locks l"
      " WHERE l.relation = 'faultline.migrations'::regclass AND NOT l.granted"
      " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())";
  std::set<std::string> turns;
  EXPECT_TRUE(eventually([&] {
    const auto waiting = must(connection.exec({"", kWaiting}, {}, soon()));
    for (int row = 0; row < waiting.rows(); ++row) turns.insert(waiting.get<std::string>(row, 0));
    return turns.size() >= 3 || ended;
  }));
  EXPECT_GE(turns.size(), 3U);
  EXPECT_TRUE(load.goes_on_for(20)) << load.error();
  must(other.exec_script("COMMIT", soon()));
  migrator.join();

  ASSERT_TRUE(report.has_value()) << report.error().describe();
  EXPECT_EQ(report->applied.size(), 1U);
  EXPECT_TRUE(load.goes_on_for(20)) << load.error();
  load.stop();
  EXPECT_EQ(number(connection, "SELECT count(*) FROM faultline.jobs WHERE queue <> ''") +
                number(connection, "SELECT count(*) FROM faultline.ledger WHERE state = 'succeeded'"),
            number(connection, "SELECT sum(available + running + succeeded)::bigint FROM faultline.tallies"));
}

TEST(MigratorTest, functions_are_replaced_under_a_running_load) {
  const TestDatabase database;
  auto connection = database.connect();
  Load load{database.dsn()};
  for (int round = 0; round < 20; ++round) {
    must(connection.exec_script("UPDATE faultline.functions SET checksum = 'another'", soon()));
    EXPECT_EQ(must(schema::migrate(connection, {}, soon())).functions_replaced, sql::kFunctions.size());
    EXPECT_TRUE(load.goes_on_for(2)) << load.error();
  }
  load.stop();
  EXPECT_EQ(load.error(), "");
}

TEST(MigratorTest, migrators_come_and_go_under_a_running_load) {
  const TestDatabase database;
  auto connection = database.connect();
  Load load{database.dsn()};
  for (int round = 0; round < 5; ++round) {
    forget_last_migration(connection);
    std::atomic<int> applied{0};
    {
      std::vector<std::jthread> migrators;
      for (int i = 0; i < 3; ++i) {
        migrators.emplace_back([&] {
          const auto report = migrate(database.dsn());
          applied += report ? static_cast<int>(report->applied.size()) : 100;
        });
      }
    }
    EXPECT_EQ(applied, 1);
    EXPECT_TRUE(load.goes_on_for(5)) << load.error();
  }
}

TEST(MigratorTest, without_the_right_to_make_a_schema_it_says_who_should_migrate) {
  const TestDatabase database{Template::empty};
  const Login login;

  const auto result = migrate(database.dsn_as(login.name()));

  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code, MigrateError::Code::permission_denied);
  EXPECT_THAT(result.error().hint, HasSubstr("owner or a superuser"));
}

TEST(MigratorTest, a_login_without_any_role_is_told_so_by_the_store) {
  const TestDatabase database;
  const Login login;

  const auto store = Store::open({.database = database.dsn_as(login.name())});

  ASSERT_FALSE(store.has_value());
  EXPECT_EQ(store.error().code, ErrorCode::permission_denied) << store.error().describe();
}

TEST(MigratorTest, the_owner_of_a_database_needs_no_right_to_make_roles_where_they_exist) {
  static_cast<void>(TestServer::instance().template_for(Template::migrated));  // makes the roles
  const Login login;
  const TestDatabase database{Template::empty};
  auto admin = TestServer::instance().admin();
  must(admin.exec_script("ALTER DATABASE " + database.name() + " OWNER TO " + login.name(), soon()));

  const auto result = migrate(database.dsn_as(login.name()));

  ASSERT_TRUE(result.has_value()) << result.error().describe();
  Store store = must(Store::open({.database = database.dsn_as(login.name())}));
  must(store.enqueue({.kind = "test"}));
  EXPECT_EQ(must(store.claim({.worker = "w"})).size(), 1U);
  must(admin.exec_script("ALTER DATABASE " + database.name() + " OWNER TO CURRENT_USER", soon()));
  auto superuser = database.connect();
  must(superuser.exec_script("REASSIGN OWNED BY " + login.name() + " TO CURRENT_USER", soon()));
  must(superuser.exec_script("DROP OWNED BY " + login.name(), soon()));
}

TEST(MigratorTest, two_databases_of_one_server_may_be_migrated_at_once_though_roles_are_the_servers) {
  const ScratchDir directory;
  PrivatePostgresOptions options;
  options.data_dir = directory / "data";
  options.database = "postgres";
  options.durable = false;
  auto server = start_provided_server(options);
  auto admin = connect(server.dsn());

  for (int round = 0; round < 5; ++round) {
    std::barrier start{2};
    std::array<std::string, 2> problems;
    for (const char* name : {"a", "b"})
      must(admin.exec_script(std::string{"CREATE DATABASE "} + name, soon()));
    {
      std::vector<std::jthread> migrators;
      for (std::size_t i = 0; i < 2; ++i) {
        migrators.emplace_back([&, i] {
          auto connection = connect(server.dsn_for(i == 0 ? "a" : "b"));
          start.arrive_and_wait();
          const auto report = schema::migrate(connection, {}, soon());
          if (!report) problems[i] = report.error().describe();
        });
      }
    }
    EXPECT_EQ(problems[0], "");
    EXPECT_EQ(problems[1], "");
    EXPECT_EQ(number(admin, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'faultline\\_%'"), 4);
    for (const char* name : {"a", "b"})
      must(admin.exec_script(std::string{"DROP DATABASE "} + name + " WITH (FORCE)", soon()));
    must(admin.exec_script(
        "DROP ROLE faultline_owner, faultline_producer, faultline_worker, faultline_reader", soon()));
  }
}

// ---- The library's own

using Options = faultline::MigrateOptions;

TEST(LibraryMigrateTest, a_program_makes_the_schema_it_needs_and_works_with_it) {
  const TestDatabase database{Template::empty};
  const Options options{.database = database.dsn(), .buckets = 2};

  const auto first = must(faultline::migrate(options));
  const auto second = must(faultline::migrate(options));

  EXPECT_EQ(first.version_before, 0);
  EXPECT_EQ(first.version_after, versions());
  EXPECT_EQ(first.applied.size(), sql::kMigrations.size());
  EXPECT_EQ(first.functions_replaced, sql::kFunctions.size());
  EXPECT_EQ(second.version_before, versions());
  EXPECT_THAT(second.applied, IsEmpty());
  EXPECT_EQ(second.functions_replaced, 0U);
  Store store = must(Store::open({.database = database.dsn()}));
  EXPECT_EQ(must(store.enqueue(NewJob{.kind = "k"})).status, Submission::Status::created);
}

TEST(LibraryMigrateTest, programs_that_start_together_make_it_once) {
  const TestDatabase database{Template::empty};
  std::atomic<std::size_t> applied{0};
  {
    std::barrier together{4};
    std::vector<std::jthread> programs;
    for (int i = 0; i < 4; ++i) {
      programs.emplace_back([&] {
        together.arrive_and_wait();
        const auto report = faultline::migrate({.database = database.dsn()});
        EXPECT_TRUE(report.has_value()) << report.error();
        applied += report ? report->applied.size() : 0;
      });
    }
  }
  EXPECT_EQ(applied, sql::kMigrations.size());
}

TEST(LibraryMigrateTest, what_is_wrong_is_an_error_with_what_to_do) {
  const TestDatabase database{Template::empty};
  const Login login;
  const auto refused = faultline::migrate({.database = database.dsn_as(login.name())});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::permission_denied);
  EXPECT_THAT(refused.error().hint, HasSubstr("owner or a superuser"));

  const auto buckets = faultline::migrate({.database = database.dsn(), .buckets = 0});
  ASSERT_FALSE(buckets);
  EXPECT_EQ(buckets.error().code, ErrorCode::invalid_argument);

  const auto nowhere = faultline::migrate({.database = "host=127.0.0.1 port=1"});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::unavailable);
  EXPECT_THAT(nowhere.error().hint, HasSubstr("database URL"));

  must(faultline::migrate({.database = database.dsn()}));
  auto connection = database.connect();
  must(connection.exec_script("UPDATE faultline.migrations SET checksum = 'x' WHERE version = 1", soon()));
  const auto foreign = faultline::migrate({.database = database.dsn()});
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code, ErrorCode::wrong_schema);
}

}  // namespace
}  // namespace faultline::testing
