#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(MigrateCommandTest, brings_a_database_up_to_date_and_says_so) {
  const TestDatabase database{Template::empty};

  const auto first = run_faultline({"migrate", "--database", database.dsn()});
  const auto second = run_faultline({"migrate", "--database", database.dsn()});

  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.out, HasSubstr("applied 1 "));
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("up to date"));
  EXPECT_TRUE(has_schema(database.dsn()));
}

TEST(MigrateCommandTest, reports_to_machines_what_it_applied) {
  const TestDatabase database{Template::empty};

  const auto first = one_object(run_faultline({"migrate", "--json", "--database", database.dsn()}).out);
  const auto second = one_object(run_faultline({"migrate", "--json", "--database", database.dsn()}).out);

  EXPECT_FALSE(first.at("dry_run").get<bool>());
  EXPECT_THAT(first.at("applied"), ::testing::Not(IsEmpty()));
  EXPECT_THAT(second.at("applied"), IsEmpty());
  EXPECT_EQ(first.at("version_before"), 0);
  EXPECT_EQ(first.at("version_after"), first.at("applied").size());
  EXPECT_EQ(second.at("version_before"), first.at("version_after"));
}

TEST(MigrateCommandTest, a_dry_run_prints_the_sql_and_changes_nothing) {
  const TestDatabase database{Template::empty};

  const auto result = run_faultline({"migrate", "--dry-run", "--database", database.dsn()});
  const auto json =
      one_object(run_faultline({"migrate", "--dry-run", "--json", "--database", database.dsn()}).out);

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("CREATE "));
  EXPECT_TRUE(json.at("dry_run").get<bool>());
  EXPECT_THAT(json.at("sql").get<std::string>(), HasSubstr("CREATE "));
  EXPECT_FALSE(has_schema(database.dsn()));
}

TEST(MigrateCommandTest, a_newer_schema_that_does_not_serve_this_program_is_refused_with_a_hint) {
  const TestDatabase database;
  auto connection = database.connect();
  must(connection.exec_script(
      "INSERT INTO faultline.migrations (version, name, checksum) VALUES (9999, 'later', '');"
      "UPDATE faultline.meta SET speaks_from = 9999",
      soon()));

  const auto result = run_faultline({"migrate", "--json", "--database", database.dsn()});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(one_object(result.err).at("error").at("code"), "newer_schema");
  EXPECT_THAT(one_object(result.err).at("error").at("hint").get<std::string>(), HasSubstr("newer faultline"));
}

}  // namespace
}  // namespace faultline::testing
