// `faultline doctor`: findings for people and for scripts. What it finds is tested in tests/audit.

#include "inspect_fixture.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DoctorCommandTest, a_danger_exits_with_1_and_says_what_to_do) {
  const TestDatabase database;  // on a server that does not sync

  const auto text = run_faultline({"doctor", "--database", database.dsn()});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, AllOf(HasSubstr("danger   fsync"), HasSubstr("do: set fsync = on"),
                              HasSubstr("ok       schema")));

  const auto json = run_faultline({"doctor", "--json", "--database", database.dsn()});
  EXPECT_EQ(json.exit_code, 1);
  const auto report = one_object(json.out);
  EXPECT_EQ(report.at("level"), "danger");
  for (const auto& finding : report.at("findings")) {
    if (finding.at("name") == "fsync") {
      EXPECT_EQ(finding.at("level"), "danger");
    }
    if (finding.at("name") == "schema") {
      EXPECT_TRUE(finding.at("do").is_null());
    }
  }
}

TEST(DoctorCommandTest, the_private_server_is_in_good_health) {
  const ScratchDir scratch;
  const std::string data_dir = scratch.path() / "pg";
  ASSERT_EQ(run_faultline({"pg", "start", "--data-dir", data_dir}).exit_code, 0);
  const auto result = run_faultline({"doctor", "--json", "--data-dir", data_dir});
  (void)run_faultline({"pg", "stop", "--data-dir", data_dir});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(one_object(result.out).at("level"), "ok") << result.out;
}

}  // namespace
}  // namespace faultline::testing
