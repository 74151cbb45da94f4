// `faultline keys`: as a person and a script use it.

#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class KeysCommandTest : public ::testing::Test {
 protected:
  ProcessResult run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--database", database_.dsn()});
    return run_faultline(std::move(arguments));
  }
  nlohmann::json run_json(std::vector<std::string> arguments) {
    arguments.emplace_back("--json");
    const auto result = run(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return one_object(result.out);
  }

  TestDatabase database_;
};

TEST_F(KeysCommandTest, a_key_is_made_shown_once_listed_and_revoked) {
  const auto created = run({"keys", "create", "--name", "billing", "--scope", "produce", "--scope", "read",
                            "--queue", "invoices", "--queue", "mails", "--expires", "90d"});
  ASSERT_EQ(created.exit_code, 0) << created.err;
  EXPECT_THAT(created.out,
              AllOf(HasSubstr("not shown again"), HasSubstr("produce read"), HasSubstr("invoices mails")));
  const auto at = created.out.find("flk_");
  ASSERT_NE(at, std::string::npos) << created.out;
  const std::string id = created.out.substr(at + 4, 12);
  const std::string secret = created.out.substr(at + 17, 64);

  const auto listed = run({"keys", "list"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out,
              AllOf(HasSubstr(id), HasSubstr("good"), HasSubstr("billing"), Not(HasSubstr(secret))));

  const auto revoked = run({"keys", "revoke", id});
  EXPECT_EQ(revoked.exit_code, 0) << revoked.err;
  EXPECT_THAT(revoked.out, HasSubstr(id));
  EXPECT_THAT(run({"keys", "list"}).out, HasSubstr("revoked"));
}

TEST_F(KeysCommandTest, scripts_get_one_object) {
  const auto created = run_json({"keys", "create", "--name", "n", "--scope", "admin"});
  EXPECT_THAT(created.at("key").get<std::string>(),
              HasSubstr("flk_" + created.at("id").get<std::string>() + "_"));
  EXPECT_EQ(created.at("scopes"), (nlohmann::json{"admin"}));
  EXPECT_TRUE(created.at("queues").is_null());
  EXPECT_TRUE(created.at("expires_at").is_null());

  const auto keys = run_json({"keys", "list"}).at("keys");
  ASSERT_EQ(keys.size(), 1U);
  EXPECT_EQ(keys.at(0).at("state"), "good");
  EXPECT_FALSE(keys.at(0).contains("key"));

  const auto revoked = run_json({"keys", "revoke", created.at("id").get<std::string>()});
  EXPECT_EQ(revoked.at("id"), created.at("id"));
  EXPECT_EQ(run_json({"keys", "list"}).at("keys").at(0).at("state"), "revoked");
}

TEST_F(KeysCommandTest, without_keys_the_list_says_how_to_make_one) {
  EXPECT_THAT(run({"keys", "list"}).out, HasSubstr("faultline keys create"));
}

TEST_F(KeysCommandTest, an_id_that_no_key_has_is_a_failure_and_is_not_repeated) {
  const auto secret =
      run_json({"keys", "create", "--name", "n", "--scope", "work"}).at("key").get<std::string>();

  const auto result = run({"keys", "revoke", secret});

  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, IsEmpty());
  EXPECT_THAT(result.err, AllOf(HasSubstr("no key of that id"), HasSubstr("faultline keys list")));
  EXPECT_THAT(result.err, Not(HasSubstr(secret)));
}

TEST_F(KeysCommandTest, wrong_usage_exits_with_2_and_makes_no_key) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"keys"}, ""},
      {{"keys", "create"}, "--name"},
      {{"keys", "create", "--name", "n"}, "--scope"},
      {{"keys", "create", "--scope", "work"}, "--name"},
      {{"keys", "create", "--name", "n", "--scope", "wrok"}, "produce, work, read and admin"},
      {{"keys", "create", "--name", "", "--scope", "work"}, "1 to 128 bytes"},
      {{"keys", "create", "--name", "n", "--scope", "work", "--expires", "90"}, "such as 90d"},
      {{"keys", "create", "--name", "n", "--scope", "work", "--expires", "0s"}, "3650 days"},
      {{"keys", "revoke"}, "ID"},
  };
  for (const auto& [arguments, says] : wrong) {
    const auto result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("\n  hint: "), HasSubstr(says)));
  }
  EXPECT_THAT(run_json({"keys", "list"}).at("keys"), IsEmpty());
}

TEST(KeysCommandWithoutSchemaTest, a_database_that_is_not_migrated_is_a_failure_with_what_to_do) {
  const TestDatabase database{Template::empty};
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"keys", "create", "--name", "n", "--scope", "work"}, {"keys", "list"}, {"keys", "revoke", "x"}}) {
    auto with_database = arguments;
    with_database.insert(with_database.end(), {"--database", database.dsn()});
    const auto result = run_faultline(with_database);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("faultline migrate"));
  }
}

}  // namespace
}  // namespace faultline::testing
