// Two releases side by side: this one works on the schema of the next, as long as that schema serves it.

#include <gmock/gmock.h>

#include "faultline/client.h"
#include "schema/migrator.h"
#include "worker/fixture.h"

namespace faultline::testing {
namespace {

using schema::MigrateError;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// This program is the release before; the database gets what a next release might add.
class SideBySideTest : public WorkerTest {
 protected:
  /// What a migration may do under older programs: it only adds.
  void migrate_to_next_release() {
    script(
        "ALTER TABLE faultline.jobs ADD COLUMN next_note text, ADD COLUMN next_size bigint NOT NULL DEFAULT "
        "0;"
        "ALTER TABLE faultline.ledger ADD COLUMN next_note text;"
        "ALTER TABLE faultline.queues ADD COLUMN next_weight integer NOT NULL DEFAULT 1;"
        "ALTER TABLE faultline.grants ADD COLUMN next_note text;"
        "ALTER TABLE faultline.effects ADD COLUMN next_note text;"
        "ALTER TABLE faultline.tallies ADD COLUMN next_count bigint NOT NULL DEFAULT 0;"
        "ALTER TABLE faultline.idempotency_keys ADD COLUMN next_note text;"
        "ALTER TABLE faultline.stale_writes ADD COLUMN next_note text;"
        "CREATE TABLE faultline.next_things (bucket smallint NOT NULL, id uuid NOT NULL);"
        "INSERT INTO faultline.migrations (version, name, checksum) VALUES (" +
        next() + ", 'next', 'of the next release')");
  }
  void stop_serving_this_release() { script("UPDATE faultline.meta SET speaks_from = " + next()); }

  /// Runs a job that fails once and one that is recorded step by step, and returns what became of them.
  std::vector<std::string> work_of(Client& client) {
    const JobId retried = must(client.enqueue({.kind = "fails_once"})).job;
    const JobId keyed =
        must(client.enqueue({.kind = "records", .idempotency_key = "k" + retried.to_string()})).job;
    std::vector<std::string> results;
    for (const JobId id : {retried, keyed})
      results.push_back(must(client.await(id, kLong)).result.value_or("none"));
    return results;
  }
  [[nodiscard]] Worker make_worker() {
    Worker worker{options()};
    worker.handle("fails_once", [](Context& context) {
      return context.attempt() == 1 ? Outcome::failure("not yet", ms{0}) : Outcome::success("\"retried\"");
    });
    worker.handle("records", [](Context& context) {
      return Outcome::success(context.once("step", [] { return std::string{"\"recorded\""}; }));
    });
    return worker;
  }

  static std::string next() { return std::to_string(schema::version_of_program() + 1); }
  static constexpr ms kLong{120'000};
};

TEST_F(SideBySideTest, programs_that_run_go_on_while_the_schema_moves_to_the_next_release) {
  Client client = must(Client::open({.database = database_.dsn()}));
  Worker worker = make_worker();
  must(worker.start());
  ASSERT_THAT(work_of(client), ElementsAre("\"retried\"", "\"recorded\"")) << "before";

  migrate_to_next_release();

  EXPECT_THAT(work_of(client), ElementsAre("\"retried\"", "\"recorded\""));
  must(store_.expire_leases());
  must(store_.prune());
  must(store_.fold_counts());
  EXPECT_EQ(counts().succeeded, 4);
}

TEST_F(SideBySideTest, programs_that_start_later_work_on_the_schema_of_the_next_release) {
  migrate_to_next_release();

  Client client = must(Client::open({.database = database_.dsn()}));
  Worker worker = make_worker();
  must(worker.start());

  EXPECT_THAT(work_of(client), ElementsAre("\"retried\"", "\"recorded\""));
  EXPECT_EQ(schema::check(sql_, soon()).value(), schema::version_of_program() + 1);
}

TEST_F(SideBySideTest, a_migrator_of_this_release_leaves_the_schema_of_the_next_one_alone) {
  migrate_to_next_release();

  const auto report = schema::migrate(sql_, {}, soon());

  ASSERT_TRUE(report.has_value()) << report.error().describe();
  EXPECT_THAT(report->applied, IsEmpty());
  EXPECT_EQ(report->version_before, schema::version_of_program() + 1);
  EXPECT_EQ(report->version_after, schema::version_of_program() + 1);
}

TEST_F(SideBySideTest, a_schema_that_serves_this_release_no_longer_is_refused_with_what_to_do) {
  migrate_to_next_release();
  stop_serving_this_release();

  const auto client = Client::open({.database = database_.dsn()});
  Worker worker = make_worker();
  const auto started = worker.start();
  const auto migrated = schema::migrate(sql_, {}, soon());

  const auto says_what_to_do =
      AllOf(HasSubstr("the database has schema version " + next()), HasSubstr("this program speaks version"),
            HasSubstr("use a newer faultline, one that speaks version " + next() + " or later"));
  ASSERT_FALSE(client.has_value());
  EXPECT_EQ(client.error().code, ErrorCode::wrong_schema);
  EXPECT_THAT(client.error().describe(), says_what_to_do);
  ASSERT_FALSE(started.has_value());
  EXPECT_EQ(started.error().code, ErrorCode::wrong_schema);
  EXPECT_THAT(started.error().describe(), says_what_to_do);
  ASSERT_FALSE(migrated.has_value());
  EXPECT_EQ(migrated.error().code, MigrateError::Code::newer_schema);
  EXPECT_THAT(migrated.error().describe(), says_what_to_do);
}

}  // namespace
}  // namespace faultline::testing
