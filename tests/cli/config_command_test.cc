// `faultline config`: what a server would run with, and what keeps it from running.

#include <cctype>

#include "program.h"

namespace faultline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

/// The value and the origin of a setting, as `config check --json` has it.
std::pair<std::string, std::string> setting(const ProcessResult& result, const std::string& name) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto json = one_object(result.out);
  for (const auto& entry : json.at("settings")) {
    if (entry.at("name") == name) return {entry.at("value"), entry.at("origin")};
  }
  ADD_FAILURE() << "there is no setting " << name;
  return {};
}

using Pair = std::pair<std::string, std::string>;

TEST(ConfigCommandTest, shows_every_setting_with_its_value_and_origin) {
  const auto result =
      run_faultline({"config", "check", "--listen", "127.0.0.1:9000"}, {{"FAULTLINE_GRPC", "off"}});

  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::ContainsRegex("listen +127.0.0.1:9000 +--listen\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("grpc +off +FAULTLINE_GRPC\n"));
  EXPECT_THAT(result.out, ::testing::ContainsRegex("http_body_max +16MiB +default\n"));
}

TEST(ConfigCommandTest, flags_come_before_the_environment_before_the_file_before_the_default) {
  const ScratchDir scratch;
  write_file(scratch / "f.toml", "waiting_max = 1\nstreams_max = 1\nbatch_max = 1\n");
  const std::string file = scratch / "f.toml";
  const auto result = run_faultline({"config", "check", "--json", "--config", file, "--waiting-max", "3"},
                                    {{"FAULTLINE_WAITING_MAX", "2"}, {"FAULTLINE_STREAMS_MAX", "2"}});

  EXPECT_EQ(setting(result, "waiting_max"), (Pair{"3", "--waiting-max"}));
  EXPECT_EQ(setting(result, "streams_max"), (Pair{"2", "FAULTLINE_STREAMS_MAX"}));
  EXPECT_EQ(setting(result, "batch_max"), (Pair{"1", file + ":3"}));
  EXPECT_EQ(setting(result, "log_level"), (Pair{"info", "default"}));
  EXPECT_EQ(setting(run_faultline({"config", "check", "--json"}, {{"FAULTLINE_CONFIG", file}}), "batch_max"),
            (Pair{"1", file + ":3"}));
}

TEST(ConfigCommandTest, a_boolean_flag_needs_no_value_and_may_have_one) {
  const auto check = [](const std::string& flag, const std::string& name) {
    return setting(run_faultline({"config", "check", "--json", flag}), name);
  };
  EXPECT_EQ(check("--allow-insecure", "allow_insecure"), (Pair{"true", "--allow-insecure"}));
  EXPECT_EQ(check("--watchdog", "watchdog"), (Pair{"true", "--watchdog"}));
  EXPECT_EQ(check("--watchdog=true", "watchdog"), (Pair{"true", "--watchdog"}));
  EXPECT_EQ(check("--watchdog=false", "watchdog"), (Pair{"false", "--watchdog"}));
  EXPECT_EQ(run_faultline({"config", "check", "--watchdog=maybe"}).exit_code, 2);
}

TEST(ConfigCommandTest, the_database_counts_wherever_it_stands_and_its_password_is_not_shown) {
  const std::string url = "postgresql://joe:hunter2@db/jobs";
  const std::string shown = "postgresql://joe:***@db/jobs";
  const ScratchDir scratch;
  write_file(scratch / "f.toml", "database = '" + url + "'\n");
  const std::string other = "postgresql://other/db";

  EXPECT_EQ(
      setting(run_faultline({"config", "check", "--json", "--database", url}, {{"DATABASE_URL", other}}),
              "database"),
      (Pair{shown, "--database"}));
  EXPECT_EQ(
      setting(run_faultline({"--database", url, "config", "check", "--json"}, {{"DATABASE_URL", other}}),
              "database"),
      (Pair{shown, "--database"}));
  EXPECT_EQ(setting(run_faultline({"config", "check", "--json"}, {{"DATABASE_URL", url}}), "database"),
            (Pair{shown, "DATABASE_URL"}));
  const auto from_file = run_faultline({"config", "check", "--config", scratch / "f.toml"});
  EXPECT_THAT(from_file.out, AllOf(HasSubstr(shown), Not(HasSubstr("hunter2"))));
}

TEST(ConfigCommandTest, an_error_is_one_message_that_names_the_setting_and_the_place_with_exit_code_2) {
  struct Case {
    std::vector<std::string> arguments;
    Environment environment;
    std::string message;
    std::string hint;
  };
  const std::vector<Case> cases{
      {{"--http-body-max", "12q"}, {}, "http_body_max (--http-body-max): \"12q\" is not a size", "MiB"},
      {{}, {{"FAULTLINE_HTTP_BODY_MAX", "12q"}}, "http_body_max (FAULTLINE_HTTP_BODY_MAX)", "MiB"},
      {{}, {{"FAULTLINE_LISTNE", ":1"}}, "FAULTLINE_LISTNE", "FAULTLINE_LISTEN"},
      {{"--listen", "0.0.0.0:8000"}, {}, "listen (--listen): 0.0.0.0:8000 can be reached", "allow_insecure"},
      {{"--config", "/nonexistent/f.toml"}, {}, "config (--config)", "config example"},
      {{"--tls-cert", "/nonexistent/c", "--tls-key", "/nonexistent/k"}, {}, "tls_cert (--tls-cert)", "PEM"},
  };
  for (const Case& wrong : cases) {
    std::vector<std::string> arguments{"config", "check"};
    arguments.insert(arguments.end(), wrong.arguments.begin(), wrong.arguments.end());
    const auto result = run_faultline(arguments, wrong.environment);
    EXPECT_EQ(result.exit_code, 2) << wrong.message;
    EXPECT_THAT(result.out, IsEmpty());
    EXPECT_THAT(result.err, AllOf(StartsWith("faultline: "), HasSubstr(wrong.message),
                                  HasSubstr("\n  hint: "), HasSubstr(wrong.hint)));
  }
}

TEST(ConfigCommandTest, the_example_is_accepted_and_changes_nothing) {
  const ScratchDir scratch;
  const auto example = run_faultline({"config", "example"});
  EXPECT_EQ(example.exit_code, 0) << example.err;
  write_file(scratch / "example.toml", example.out);

  const auto with = run_faultline({"config", "check", "--json", "--config", scratch / "example.toml"});
  const auto without = run_faultline({"config", "check", "--json"});

  ASSERT_EQ(with.exit_code, 0) << with.err;
  const auto settings = one_object(with.out).at("settings");
  const auto defaults = one_object(without.out).at("settings");
  ASSERT_EQ(settings.size(), defaults.size());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    EXPECT_EQ(settings[i].at("value"), defaults[i].at("value"));
    EXPECT_THAT(settings[i].at("origin").get<std::string>(), HasSubstr("example.toml:"));
  }
}

TEST(ConfigCommandTest, help_names_the_flag_the_variable_and_the_default_of_every_setting) {
  const auto settings = one_object(run_faultline({"config", "check", "--json"}).out).at("settings");
  for (const std::vector<std::string>& command : {std::vector<std::string>{"config", "check"}, {"serve"}}) {
    auto arguments = command;
    arguments.emplace_back("--help");
    const auto help = run_faultline(arguments);
    EXPECT_EQ(help.exit_code, 0);
    for (const auto& entry : settings) {
      std::string upper = entry.at("name");
      std::ranges::transform(upper, upper.begin(), [](char c) {
        return static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      });
      EXPECT_THAT(help.out, HasSubstr("FAULTLINE_" + upper + ", default: "));
    }
  }
}

}  // namespace
}  // namespace faultline::testing
