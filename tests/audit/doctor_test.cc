// The doctor: each thing that it looks at, on a PostgreSQL that was set up badly on purpose.

#include "audit/doctor.h"

#include <thread>

#include <gmock/gmock.h>

#include "private_pg/binaries.h"
#include "schema/migrator.h"
#include "sql/statements.h"
#include "store/fixture.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using audit::Finding;
using audit::Level;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;

Finding finding(pg::Connection& connection, std::string_view name) {
  const auto findings = must(audit::examine(connection, soon()));
  const auto found = std::ranges::find(findings, name, &Finding::name);
  if (found == findings.end()) throw std::runtime_error("the doctor did not look at " + std::string{name});
  return *found;
}
Finding finding(const std::string& dsn, std::string_view name) {
  auto connection = connect(dsn);
  return finding(connection, name);
}

auto is(Level level, const std::string& seen) {
  return AllOf(Field("level", &Finding::level, level), Field("seen", &Finding::seen, HasSubstr(seen)));
}
auto is(Level level, const std::string& seen, const std::string& todo) {
  return AllOf(is(level, seen), Field("todo", &Finding::todo, HasSubstr(todo)));
}

TEST(DoctorTest, a_durable_server_is_fine_and_each_of_its_settings_is_found_when_it_is_turned_bad) {
  const ScratchDir scratch;
  PrivatePostgresOptions options;
  options.data_dir = scratch.path() / "pg";
  options.settings = {{"max_connections", "10"},
                      {"max_prepared_transactions", "5"},
                      {"max_wal_senders", "2"},
                      {"wal_level", "replica"}};
  auto server = start_provided_server(options);
  auto sql = connect(server.dsn());
  must(schema::migrate(sql, {}, soon()));
  const auto change = [&](const std::string& setting) {
    must(sql.exec_script("ALTER SYSTEM " + setting, soon()));
    must(sql.exec_script("SELECT pg_reload_conf()", soon()));
  };

  for (const Finding& each : must(audit::examine(sql, soon()))) {
    EXPECT_NE(each.level, Level::danger) << each.name << ": " << each.seen;
    EXPECT_EQ(each.todo.empty(), each.level == Level::ok) << each.name << ": " << each.todo;
  }
  EXPECT_THAT(finding(sql, "fsync"), is(Level::ok, "on"));
  EXPECT_THAT(finding(sql, "full_page_writes"), is(Level::ok, "on"));
  EXPECT_THAT(finding(sql, "synchronous_commit"), is(Level::ok, "on"));
  EXPECT_THAT(finding(sql, "standbys"), is(Level::ok, "none"));
  EXPECT_THAT(finding(sql, "connection"), is(Level::ok, "PostgreSQL 1"));

  change("SET autovacuum = off");
  EXPECT_TRUE(eventually([&] { return finding(sql, "bloat").level == Level::danger; }));
  EXPECT_THAT(finding(sql, "bloat"), is(Level::danger, "autovacuum is off", "autovacuum = on"));

  must(sql.exec_script("SELECT pg_create_physical_replication_slot('nobody', true)", soon()));
  EXPECT_THAT(finding(sql, "standbys"), is(Level::warning, "nobody", "pg_drop_replication_slot"));
  must(sql.exec_script("SELECT pg_drop_replication_slot('nobody')", soon()));

  must(sql.exec_script("BEGIN; CREATE TABLE forgotten (); PREPARE TRANSACTION 'forgotten-one'", soon()));
  EXPECT_THAT(finding(sql, "oldest_snapshot"), is(Level::warning, "forgotten-one", "ROLLBACK PREPARED"));
  must(sql.exec_script("ROLLBACK PREPARED 'forgotten-one'", soon()));

  {
    // It reads the log as a standby does, and nobody waits for it.
    std::filesystem::create_directory(scratch / "wal");
    const ChildProcess receiver{
        {.argv = {(must(private_pg::find_binaries(std::nullopt)).directory / "pg_receivewal").string(), "-d",
                  server.dsn(), "-D", (scratch / "wal").string()}}};
    EXPECT_TRUE(eventually([&] { return finding(sql, "standbys").level == Level::warning; }))
        << receiver.err();
    EXPECT_THAT(finding(sql, "standbys"),
                is(Level::warning, "asynchronous: pg_receivewal", "synchronous_standby_names"));
  }

  change("SET synchronous_standby_names = 'ghost'");
  EXPECT_TRUE(eventually([&] { return finding(sql, "standbys").level == Level::danger; }));
  EXPECT_THAT(finding(sql, "standbys"), is(Level::danger, "\"ghost\"", "bring the standby back"));
  change("RESET synchronous_standby_names");

  std::vector<pg::Connection> many;
  while (many.size() < 6) many.push_back(connect(server.dsn()));
  EXPECT_THAT(finding(sql, "connections"), is(Level::danger, "7 of 7", "max_connections"));
}

TEST(DoctorTest, a_server_that_does_not_sync_is_a_danger) {
  const TestDatabase database;
  EXPECT_THAT(finding(database.dsn(), "fsync"), is(Level::danger, "off", "fsync = on"));
  EXPECT_THAT(finding(database.dsn(), "full_page_writes"), is(Level::danger, "off", "full_page_writes = on"));
}

TEST(DoctorTest, a_database_that_does_not_wait_for_its_commits_is_a_danger) {
  const TestDatabase database;
  auto sql = database.connect();
  must(sql.exec_script("ALTER DATABASE " + database.name() + " SET synchronous_commit = off", soon()));
  EXPECT_THAT(finding(database.dsn(), "synchronous_commit"),
              is(Level::danger, "off", "SET synchronous_commit = on"));
  must(sql.exec_script("ALTER DATABASE " + database.name() + " SET synchronous_commit = on", soon()));
  EXPECT_THAT(finding(database.dsn(), "synchronous_commit"), is(Level::ok, "on"));
}

TEST(DoctorTest, the_oldest_snapshot_is_named_by_its_pid_and_is_a_danger_when_it_is_old) {
  const TestDatabase database;
  auto sql = database.connect();
  auto idle = database.connect();
  must(idle.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", soon()));
  must(sql.exec_script("CREATE TABLE later ()", soon()));
  const std::string pid = std::to_string(idle.backend_pid());

  EXPECT_THAT(finding(sql, "oldest_snapshot"), is(Level::ok, "pid " + pid));
  EXPECT_THAT(finding(sql, "oldest_snapshot"), is(Level::ok, "idle in transaction"));

  MovableClock clock{database.dsn()};  // which is years ahead
  EXPECT_THAT(finding(sql, "oldest_snapshot"),
              is(Level::danger, "pid " + pid, "pg_terminate_backend(" + pid + ")"));

  idle.rollback(soon());
  EXPECT_TRUE(eventually(
      [&] { return finding(sql, "oldest_snapshot").seen.find("pid " + pid) == std::string::npos; }));
}

TEST(DoctorTest, a_clock_that_goes_on_is_fine_and_one_that_stands_still_is_a_danger) {
  const TestDatabase database;
  auto sql = database.connect();
  EXPECT_THAT(finding(sql, "clock"), is(Level::ok, "this machine"));
  must(sql.exec_script(
      "CREATE OR REPLACE FUNCTION faultline.clock() RETURNS timestamptz LANGUAGE sql STABLE AS"
      " 'SELECT statement_timestamp() - interval ''1 hour'''",
      soon()));
  EXPECT_THAT(finding(sql, "clock"), is(Level::warning, "behind this machine", "NTP"));
  MovableClock clock{database.dsn()};
  EXPECT_THAT(finding(sql, "clock"), is(Level::danger, "does not go on", "NTP"));
}

TEST(DoctorTest, what_a_login_may_do_is_told) {
  const TestDatabase database;
  auto sql = database.connect();
  EXPECT_THAT(finding(sql, "role"), is(Level::ok, "superuser"));
  const std::string login = "patient_" + database.name();
  must(sql.exec_script("CREATE ROLE " + login + " LOGIN", soon()));
  EXPECT_THAT(finding(database.dsn_as(login), "role"),
              is(Level::danger, "no role of Faultline", "GRANT faultline_owner"));
  must(sql.exec_script("GRANT faultline_worker TO " + login, soon()));
  EXPECT_THAT(
      finding(database.dsn_as(login), "role"),
      is(Level::warning, "is faultline_worker: it may look, add jobs, work", "GRANT pg_read_all_stats"));
  must(sql.exec_script("GRANT pg_read_all_stats TO " + login, soon()));
  EXPECT_THAT(finding(database.dsn_as(login), "role"),
              is(Level::ok, "is faultline_worker: it may look, add jobs, work"));
  EXPECT_THAT(finding(database.dsn_as(login), "expired_leases"), is(Level::ok, "none"));
  must(sql.exec_script("DROP ROLE " + login, soon()));
}

TEST(DoctorTest, a_login_that_may_not_see_the_sessions_of_others_is_told_of_them_all_the_same) {
  const TestDatabase database;
  auto sql = database.connect();
  auto holder = database.connect();
  must(
      holder.exec_script("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM faultline.meta; LOCK TABLE "
                         "faultline.meta IN SHARE MODE",
                         soon()));
  auto waiter = database.connect();
  std::jthread waits{
      [&] { (void)waiter.exec_script("BEGIN; LOCK TABLE faultline.meta IN EXCLUSIVE MODE", soon()); }};
  ASSERT_TRUE(eventually([&] {
    return query_text(sql,
                      "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = "
                      "'faultline.meta'::regclass AND database = "
                      "(SELECT oid FROM pg_database WHERE datname = current_database())") == "1";
  }));
  const std::string login = "patient_" + database.name();
  for (const std::string role :
       {"faultline_reader", "faultline_producer", "faultline_worker", "faultline_owner"}) {
    must(sql.exec_script("CREATE ROLE " + login + " LOGIN IN ROLE " + role, soon()));
    const std::string dsn = database.dsn_as(login);
    EXPECT_THAT(finding(dsn, "oldest_snapshot"), is(Level::ok, "not shown to this login")) << role;
    EXPECT_THAT(finding(dsn, "locks"), Field("seen", &Finding::seen, HasSubstr("1 other waits for"))) << role;
    EXPECT_THAT(finding(dsn, "role"), is(Level::warning, "hidden from it", "GRANT pg_read_all_stats"))
        << role;
    auto stranger = connect(dsn);
    const auto connections = [](pg::Connection& as) {
      return must(as.exec(sql::kDatabaseHealth, {}, soon())).get<double>(0, 2);
    };
    EXPECT_GE(connections(stranger), 4) << role;
    must(sql.exec_script("DROP ROLE " + login, soon()));
  }
  must(holder.exec_script("ROLLBACK", soon()));
}

TEST(DoctorTest, a_database_without_the_schema_is_a_finding_with_what_to_do) {
  const TestDatabase database{Template::empty};
  EXPECT_THAT(finding(database.dsn(), "schema"), is(Level::danger, "", "faultline migrate"));
}

TEST(DoctorTest, bloat_and_a_table_that_is_not_vacuumed_are_found) {
  const TestDatabase database;
  auto sql = database.connect();
  must(sql.exec_script("ALTER TABLE faultline.jobs SET (autovacuum_enabled = false)", soon()));
  EXPECT_THAT(finding(sql, "bloat"),
              is(Level::danger, "autovacuum is off for jobs", "RESET (autovacuum_enabled)"));
  must(sql.exec_script(
      "DO $$ BEGIN FOR i IN 1..150 LOOP UPDATE faultline.jobs SET last_error = i::text; END LOOP;"
      " END $$",
      soon()));
  EXPECT_TRUE(eventually([&] {
    must(sql.exec_script("SELECT pg_stat_force_next_flush()", soon()));
    return finding(sql, "bloat").seen.find("bloated: jobs") != std::string::npos;
  }));
}

class DoctorStoreTest : public StoreTest {};

TEST_F(DoctorStoreTest, a_queue_in_which_everything_fails_is_named_with_an_error) {
  EXPECT_THAT(finding(sql_, "failing_queues"), is(Level::ok, "none"));
  must(store_.set_queue("mail", {}));
  enqueue_many(30, {.queue = "mail"});
  enqueue_many(3);
  for (const ClaimedJob& job : claim("A", 12, "mail"))
    settle(job.lease, Outcome::failure("the relay is gone", std::chrono::hours{1}));
  for (const ClaimedJob& job : claim("A", 3))
    settle(job.lease, Outcome::failure("no", std::chrono::hours{1}));
  EXPECT_THAT(finding(sql_, "failing_queues"), is(Level::ok, "none")) << "the rest has yet to be tried";

  for (const ClaimedJob& job : claim("A", 18, "mail"))
    settle(job.lease, Outcome::failure("the relay is gone", std::chrono::hours{1}));

  EXPECT_THAT(finding(sql_, "failing_queues"),
              is(Level::warning,
                 "in mail 30 jobs wait for another attempt, and 0 have ended in ten minutes: the "
                 "relay is gone",
                 "jobs list --queue mail"));

  enqueue_many(40, {.queue = "mail"});
  for (const ClaimedJob& job : claim("A", 40, "mail")) complete(job.lease);
  EXPECT_THAT(finding(sql_, "failing_queues"), is(Level::ok, "none")) << "it does its work";
}

TEST_F(DoctorStoreTest, who_keeps_others_waiting_is_named_and_not_those_who_wait) {
  EXPECT_THAT(finding(sql_, "locks"), is(Level::ok, "nobody"));
  auto blocker = database_.connect();
  auto waiting = database_.connect();
  must(blocker.exec_script("BEGIN; LOCK TABLE faultline.jobs IN ACCESS EXCLUSIVE MODE", soon()));
  std::jthread waits{
      [&] { must(waiting.exec_script("BEGIN; LOCK TABLE faultline.jobs IN SHARE MODE; ROLLBACK", soon())); }};
  const std::string pid = std::to_string(blocker.backend_pid());

  EXPECT_TRUE(eventually([&] {
    const Finding found = finding(sql_, "locks");
    return found.level != Level::ok && found.seen.find("pid " + pid + " ") != std::string::npos &&
           found.todo.find("pg_terminate_backend(" + pid + ")") != std::string::npos;
  }));
  must(blocker.exec_script("ROLLBACK", soon()));
}

TEST_F(DoctorStoreTest, leases_that_nobody_ends_are_told_until_a_watchdog_comes) {
  enqueue();
  claim_one("w");
  EXPECT_THAT(finding(sql_, "expired_leases"), is(Level::ok, "none"));
  advance(kTtl + std::chrono::seconds{90});
  EXPECT_THAT(finding(sql_, "expired_leases"),
              is(Level::warning, "1, the oldest since 1 min 30 s", "watchdog"));
  advance(std::chrono::hours{1});
  EXPECT_THAT(finding(sql_, "expired_leases"), is(Level::danger, "no watchdog"));
  sweep();
  EXPECT_THAT(finding(sql_, "expired_leases"), is(Level::ok, "none"));
}

TEST_F(DoctorStoreTest, paused_queues_are_told_with_what_waits_in_them) {
  EXPECT_THAT(finding(sql_, "paused_queues"), is(Level::ok, "none"));
  enqueue_many(3);
  must(store_.pause("default"));
  EXPECT_THAT(finding(sql_, "paused_queues"),
              is(Level::warning, "default, with 3 jobs waiting", "faultline queues resume default"));
}

}  // namespace
}  // namespace faultline::testing
