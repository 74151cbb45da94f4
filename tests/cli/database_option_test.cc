// Which database is used, and what is said when it cannot be.

#include <csignal>

#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// Port 1 of the loopback interface: nobody listens there.
const std::string kNobodyThere = "postgresql://joe:hunter2@127.0.0.1:1/jobs";

TEST(DatabaseOptionTest, an_unreachable_database_is_a_failure_with_a_hint) {
  const auto result = run_faultline({"migrate", "--database", kNobodyThere});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, HasSubstr("faultline: cannot use the database"));
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1"));
  EXPECT_THAT(result.err, HasSubstr("\n  hint: "));
}

TEST(DatabaseOptionTest, an_unreachable_database_has_a_code_for_machines) {
  const auto result = run_faultline({"migrate", "--json", "--database", kNobodyThere});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(one_object(result.err).at("error").at("code"), "cannot_connect");
}

TEST(DatabaseOptionTest, a_password_does_not_stay_in_the_list_of_processes) {
  const TestDatabase database;
  const std::string dsn = database.dsn();
  const std::string secret =
      dsn + (dsn.contains("://") ? (dsn.contains('?') ? "&" : "?") : " ") + "password=hunter2";
  for (const auto& words : {std::vector<std::string>{"--database", secret}, {"--database=" + secret}}) {
    std::vector<std::string> arguments{"top", "--json", "--interval", "100ms"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    ChildProcess top{faultline_program(std::move(arguments))};
    ASSERT_TRUE(eventually([&] { return top.out().contains('\n'); })) << top.err();

    const std::string shown = read_file("/proc/" + std::to_string(top.pid()) + "/cmdline");

    EXPECT_THAT(shown, HasSubstr("--interval"));
    EXPECT_THAT(shown, HasSubstr(database.name())) << "which database it is may be seen";
    EXPECT_THAT(shown, Not(HasSubstr("hunter2")));
    top.send(SIGTERM);
    EXPECT_EQ(top.wait().exit_code, 0);
  }
}

TEST(DatabaseOptionTest, passwords_are_never_printed) {
  for (const std::string url : {
           "postgresql://joe:hunter2@127.0.0.1:1/jobs",
           "postgres://joe:hunter2@127.0.0.1:1/jobs?sslpassword=hunter2",
           "postgresql://127.0.0.1:1/jobs?user=joe&password=hunter2&application_name=x",
           "postgresql://joe:p@ss/hunter2@127.0.0.1:1/jobs",
           "postgresql://joe:hunter2@[not-an-address/jobs",
           "postgresql://joe:hunter2%zz@127.0.0.1:1/jobs",
           "host=127.0.0.1 port=1 user=joe password=hunter2 dbname=jobs",
           "host=127.0.0.1 port=1 password = 'it is hunter2' user=joe",
           "host=127.0.0.1 port=1 password='hunter2",
           "password=hunter2 no-such-keyword=1",
           "joe:hunter2@127.0.0.1/jobs?password=hunter2",
           "mysql://joe:hunter2@127.0.0.1:1/jobs",
       }) {
    for (const auto& result : {run_faultline({"migrate", "--database", url}),
                               run_faultline({"migrate", "--json"}, {{"DATABASE_URL", url}})}) {
      EXPECT_NE(result.exit_code, 0) << url;
      EXPECT_THAT(result.err, Not(HasSubstr("hunter2"))) << url;
      EXPECT_THAT(result.out, Not(HasSubstr("hunter2"))) << url;
    }
  }
}

TEST(DatabaseOptionTest, the_option_comes_before_the_environment) {
  const TestDatabase database{Template::empty};

  const auto result =
      run_faultline({"migrate", "--database", database.dsn()}, {{"DATABASE_URL", kNobodyThere}});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(has_schema(database.dsn()));
}

TEST(DatabaseOptionTest, what_serve_is_told_holds_for_every_command) {
  const TestDatabase database{Template::empty};
  const ScratchDir scratch;
  write_file(scratch / "faultline.toml", "database = \"" + database.dsn() + "\"\n");

  const auto by_variable =
      run_faultline({"migrate"}, {{"FAULTLINE_DATABASE", database.dsn()}, {"DATABASE_URL", kNobodyThere}});
  EXPECT_EQ(by_variable.exit_code, 0) << by_variable.err;
  EXPECT_TRUE(has_schema(database.dsn()));

  const auto by_file = run_faultline(
      {"migrate", "--json"}, {{"FAULTLINE_CONFIG", scratch / "faultline.toml"}, {"DATABASE_URL", ""}});
  EXPECT_EQ(by_file.exit_code, 0) << by_file.err;
  EXPECT_EQ(one_object(by_file.out).at("applied").size(), 0U);
  EXPECT_THAT(one_object(by_file.out).at("database").get<std::string>(), HasSubstr(database.name()));

  write_file(scratch / "faultline.toml", "databse = \"" + database.dsn() + "\"\n");
  const auto mistyped = run_faultline({"migrate"}, {{"FAULTLINE_CONFIG", scratch / "faultline.toml"}});
  EXPECT_EQ(mistyped.exit_code, 2);
  EXPECT_THAT(mistyped.err, HasSubstr("databse"));
}

TEST(DatabaseOptionTest, the_environment_comes_before_the_private_server) {
  const TestDatabase database{Template::empty};
  const ScratchDir scratch;

  const auto result =
      run_faultline({"migrate", "--data-dir", scratch / "data"}, {{"DATABASE_URL", database.dsn()}});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(has_schema(database.dsn()));
  EXPECT_FALSE(std::filesystem::exists(scratch / "data"));
}

}  // namespace
}  // namespace faultline::testing
