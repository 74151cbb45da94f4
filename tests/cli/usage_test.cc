// The command line: what is refused, and in which words.

#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

TEST(UsageTest, the_version_is_printed) {
  EXPECT_THAT(run_faultline({"--version"}).out, StartsWith("faultline "));
  const auto result = run_faultline({"version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, run_faultline({"--version"}).out);
  const auto json = one_object(run_faultline({"version", "--json"}).out);
  EXPECT_EQ("faultline " + json.at("version").get<std::string>() + "\n", result.out);
}

TEST(UsageTest, help_names_every_subcommand) {
  const auto result = run_faultline({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const auto* name : {"migrate", "pg", "version"}) EXPECT_THAT(result.out, HasSubstr(name));
}

TEST(UsageTest, wrong_usage_exits_with_2_and_says_where_to_look) {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"no-such-command"},
      {"pg"},
      {"pg", "no-such-verb"},
      {"migrate", "--no-such-option"},
      {"migrate", "--buckets", "none"},
      {"migrate", "--buckets", "0"},
      {"migrate", "--database"},
      {"pg", "status", "--database", "postgresql://localhost/x"},
      {"migrate", "--database", "not-a-url"},
      {"migrate", "--database", "mysql://localhost/x"},
  };
  for (const auto& arguments : wrong) {
    const auto result = run_faultline(arguments);
    const std::string line = ::testing::PrintToString(arguments);
    EXPECT_EQ(result.exit_code, 2) << line;
    EXPECT_THAT(result.out, IsEmpty()) << line;
    EXPECT_THAT(result.err, StartsWith("faultline: ")) << line;
    EXPECT_THAT(result.err, HasSubstr("\n  hint: ")) << line;
  }
}

TEST(UsageTest, an_unknown_subcommand_is_named) {
  EXPECT_THAT(run_faultline({"migrat"}).err, HasSubstr("\"migrat\""));
  EXPECT_THAT(run_faultline({"pg", "restart"}).err, HasSubstr("\"restart\""));
}

TEST(UsageTest, with_json_an_error_is_one_object_on_stderr) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"--json", "no-such-command"}, {"migrate", "--json", "--database", "not-a-url"}}) {
    const auto result = run_faultline(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.out, IsEmpty());
    const auto error = one_object(result.err).at("error");
    EXPECT_THAT(error.at("code").get<std::string>(), Not(IsEmpty()));
    EXPECT_THAT(error.at("message").get<std::string>(), Not(IsEmpty()));
    EXPECT_THAT(error.at("hint").get<std::string>(), Not(IsEmpty()));
  }
}

TEST(UsageTest, global_options_stand_before_or_after_the_subcommand) {
  const ScratchDir scratch;
  const std::string data = scratch / "data";
  const auto before = run_faultline({"--json", "--data-dir", data, "pg", "status"});
  const auto after = run_faultline({"pg", "status", "--data-dir", data, "--json"});
  EXPECT_EQ(before.exit_code, 0);
  EXPECT_EQ(one_object(before.out).at("data_dir"), data);
  EXPECT_EQ(before.out, after.out);
}

TEST(UsageTest, a_mistyped_option_does_not_spill_the_password_beside_it) {
  for (const auto* url :
       {"postgresql://joe:hunter2@localhost/x", "joe:hunter2@localhost/x", "password=hunter2"}) {
    const auto result = run_faultline({"migrate", "--databse", url});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, Not(HasSubstr("hunter2")));
  }
}

TEST(UsageTest, an_answer_that_cannot_be_written_is_a_failure) {
  for (const std::string words : {"version", "version --json"}) {
    const auto result =
        run_process({.argv = {"sh", "-c", std::string{FAULTLINE_PROGRAM} + " " + words + " >/dev/full"}});
    EXPECT_EQ(result.exit_code, 1) << words;
    EXPECT_THAT(result.err, ::testing::HasSubstr("standard output could not be written")) << words;
  }
}

}  // namespace
}  // namespace faultline::testing
