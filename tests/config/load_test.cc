// Where a setting's value comes from.

#include <set>

#include <gmock/gmock.h>

#include "config/settings.h"
#include "support/database.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using namespace std::chrono_literals;
using config::Loaded;
using config::Setting;
using config::Sources;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kFile = "faultline.toml";

Loaded load_text(std::string_view toml, const Sources& sources = {}) {
  return must(config::load_text(toml, kFile, sources));
}

/// Another value than the default one that a setting can have, as it is shown. What it needs beside it comes
/// with it.
std::string another_value(const Setting& setting) {
  static const std::map<std::string, std::string> special{{"database", "postgresql://joe@db/jobs"},
                                                          {"listen", "127.0.0.1:9000"},
                                                          {"grpc", "off"},
                                                          {"auth", "keys"},
                                                          {"tls_cert", "/tls/server.pem"},
                                                          {"tls_key", "/tls/server.key"},
                                                          {"tls_client_ca", "/tls/ca.pem"},
                                                          {"cors_origin", "https://app.example.com"},
                                                          {"hosts", "queue.example.com,[fd00::1]"},
                                                          {"otlp_endpoint", "http://127.0.0.1:4318"},
                                                          {"otlp_ca", "/tls/otlp-ca.pem"},
                                                          {"otlp_sample_ratio", "0.25"},
                                                          {"log_format", "json"},
                                                          {"log_level", "warning"}};
  if (const auto found = special.find(setting.name); found != special.end()) return found->second;
  if (setting.value_name == "BOOL") return setting.default_value == "true" ? "false" : "true";
  if (setting.value_name == "N") return "77";
  if (setting.value_name == "BYTES") return "2KiB";
  if (setting.value_name == "DURATION") return "7s";
  ADD_FAILURE() << "no other value is known for " << setting.name;
  return "";
}

/// Flags that a setting cannot be without.
Sources companions_of(const Setting& setting) {
  Sources sources;
  if (setting.name.starts_with("tls_")) {
    for (const std::string name : {"tls_cert", "tls_key"}) {
      if (name != setting.name) sources.flags[name] = "/tls/other";
    }
  }
  return sources;
}

/// One test for every row of the table.
class EverySettingTest : public ::testing::TestWithParam<Setting> {};

TEST_P(EverySettingTest, has_its_default_when_nobody_sets_it) {
  const Loaded loaded = load_text("");

  EXPECT_EQ(config::shown(loaded.settings, GetParam().name), GetParam().default_value);
  EXPECT_EQ(loaded.origins.at(GetParam().name).text, "default");
}

TEST_P(EverySettingTest, can_be_set_by_its_flag_its_variable_and_its_line_in_the_file) {
  const Setting& setting = GetParam();
  const std::string value = another_value(setting);
  ASSERT_NE(value, setting.default_value);
  const bool bare =
      setting.value_name == "BOOL" || setting.value_name == "N" || setting.value_name == "RATIO";

  Sources by_flag = companions_of(setting);
  by_flag.flags[setting.name] = value;
  Sources by_variable = companions_of(setting);
  by_variable.environment[setting.environment()] = value;
  const Sources others = companions_of(setting);
  const std::vector<std::pair<std::string, Loaded>> all{
      {setting.flag(), load_text("", by_flag)},
      {setting.environment(), load_text("", by_variable)},
      {"faultline.toml:2", load_text("# a comment\n" + setting.name + " = \"" + value + "\"\n", others)},
      {"faultline.toml:1", load_text(setting.name + " = " + (bare ? value : "'" + value + "'"), others)}};

  for (const auto& [origin, loaded] : all) {
    EXPECT_EQ(config::shown(loaded.settings, setting.name), value) << origin;
    EXPECT_EQ(loaded.origins.at(setting.name).text, origin);
    for (const Setting& other : config::all_settings()) {
      if (other.name == setting.name || others.flags.contains(other.name)) continue;
      EXPECT_EQ(config::shown(loaded.settings, other.name), other.default_value) << other.name;
    }
  }
}

TEST_P(EverySettingTest, takes_the_flag_before_the_variable_before_the_file) {
  const Setting& setting = GetParam();
  const std::string value = another_value(setting);
  // What comes later is not even looked at.
  const std::string file = setting.name + " = \"nonsense \\u0000\"\n";
  Sources sources = companions_of(setting);
  sources.environment[setting.environment()] = value;
  EXPECT_EQ(load_text(file, sources).origins.at(setting.name).text, setting.environment());

  sources.flags[setting.name] = value;
  sources.environment[setting.environment()] = "nonsense";
  const Loaded loaded = load_text(file, sources);
  EXPECT_EQ(loaded.origins.at(setting.name).text, setting.flag());
  EXPECT_EQ(config::shown(loaded.settings, setting.name), value);
}

TEST_P(EverySettingTest, is_spelled_in_three_ways_and_explained) {
  const Setting& setting = GetParam();
  EXPECT_THAT(setting.name, ::testing::MatchesRegex("[a-z]+(_[a-z]+)*"));
  EXPECT_THAT(setting.help, EndsWith("."));
  EXPECT_FALSE(setting.value_name.empty());
}

INSTANTIATE_TEST_SUITE_P(All, EverySettingTest, ::testing::ValuesIn(config::all_settings()),
                         [](const auto& test) { return test.param.name; });

TEST(SettingsTest, names_are_spelled_as_each_place_spells_names) {
  const auto& all = config::all_settings();
  const auto found = std::ranges::find(all, "http_body_max", &Setting::name);
  ASSERT_NE(found, all.end());
  EXPECT_EQ(found->flag(), "--http-body-max");
  EXPECT_EQ(found->environment(), "FAULTLINE_HTTP_BODY_MAX");
  std::set<std::string> names;
  for (const Setting& setting : all) names.insert(setting.name);
  EXPECT_EQ(names.size(), all.size());
}

TEST(SettingsTest, a_file_sets_many_at_once_in_the_types_of_toml) {
  const auto settings = load_text(
                            "listen = ':9000'\ngrpc = \"off\"\nauth = \"keys\"\nwatchdog = false\n"
                            "waiting_max = 1_000\npayload_max = 0x1000\nhttp_body_max = \"1MiB\"\n"
                            "drain_delay = \"5s\"\n")
                            .settings;

  EXPECT_EQ(settings.listen, (HostPort{"127.0.0.1", 9000}));
  EXPECT_EQ(settings.grpc, std::nullopt);
  EXPECT_EQ(settings.auth, config::Auth::keys);
  EXPECT_FALSE(settings.watchdog);
  EXPECT_EQ(settings.waiting_max, 1'000U);
  EXPECT_EQ(settings.payload_max, 4'096U);
  EXPECT_EQ(settings.http_body_max, 1'048'576U);
  EXPECT_EQ(settings.drain_delay, 5s);
}

TEST(SettingsTest, an_empty_variable_counts_as_not_set) {
  const Loaded loaded = load_text("waiting_max = 7",
                                  {.environment = {{"FAULTLINE_WAITING_MAX", ""}, {"FAULTLINE_LISTEN", ""}}});

  EXPECT_EQ(loaded.settings.waiting_max, 7U);
  EXPECT_EQ(loaded.origins.at("listen").text, "default");
}

TEST(SettingsTest, database_url_is_a_variable_of_the_database_behind_its_own) {
  Sources sources{.environment = {{"DATABASE_URL", "postgresql://usual/db"}}};
  Loaded loaded = load_text("database = 'postgresql://file/db'", sources);
  EXPECT_EQ(loaded.settings.database, "postgresql://usual/db");
  EXPECT_EQ(loaded.origins.at("database").text, "DATABASE_URL");

  sources.environment["FAULTLINE_DATABASE"] = "postgresql://own/db";
  EXPECT_EQ(load_text("", sources).settings.database, "postgresql://own/db");
  EXPECT_EQ(load_text("", {.environment = {{"DATABASE_URL", ""}}}).settings.database, "");
}

TEST(SettingsTest, the_database_is_loaded_whole_and_shown_without_its_password) {
  const std::string url = "postgresql://joe:hunter2@db/jobs";
  const Loaded loaded = load_text("database = '" + url + "'");

  EXPECT_EQ(loaded.settings.database, url);
  EXPECT_EQ(config::shown(loaded.settings, "database"), "postgresql://joe:***@db/jobs");
}

TEST(SettingsTest, the_example_is_a_file_with_every_setting_at_its_default) {
  const std::string example = config::example();
  const Loaded loaded = load_text(example);

  for (const Setting& setting : config::all_settings()) {
    EXPECT_EQ(config::shown(loaded.settings, setting.name), setting.default_value);
    EXPECT_THAT(loaded.origins.at(setting.name).text, HasSubstr("faultline.toml:")) << setting.name;
    EXPECT_THAT(example, HasSubstr(setting.help));
  }
}

TEST(SettingsTest, the_file_is_named_by_the_flag_before_the_variable) {
  const ScratchDir scratch;
  write_file(scratch / "flag.toml", "waiting_max = 1");
  write_file(scratch / "variable.toml", "waiting_max = 2");
  Sources sources{.environment = {{"FAULTLINE_CONFIG", scratch / "variable.toml"}}};

  const Loaded by_variable = must(config::load(sources));
  sources.file = scratch / "flag.toml";
  const Loaded by_flag = must(config::load(sources));
  const Loaded without = must(config::load({.environment = {{"FAULTLINE_CONFIG", ""}}}));

  EXPECT_EQ(by_variable.settings.waiting_max, 2U);
  EXPECT_EQ(by_flag.settings.waiting_max, 1U);
  EXPECT_EQ(by_flag.origins.at("waiting_max").text, (scratch / "flag.toml").string() + ":1");
  EXPECT_EQ(without.origins.at("waiting_max").text, "default");
}

TEST(SettingsTest,
     the_environment_of_the_process_is_what_begins_with_faultline_and_what_others_call_a_setting) {
  const ScopedEnvironment url{"DATABASE_URL", "postgresql://db/jobs"};
  const ScopedEnvironment level{"FAULTLINE_LOG_LEVEL", "debug"};
  const ScopedEnvironment collector{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"};
  const ScopedEnvironment other{"OTHER_LISTEN", "x"};

  const auto environment = config::process_environment();

  EXPECT_EQ(environment.at("DATABASE_URL"), "postgresql://db/jobs");
  EXPECT_EQ(environment.at("FAULTLINE_LOG_LEVEL"), "debug");
  EXPECT_EQ(load_text("", {.environment = environment}).settings.otlp_endpoint, "http://127.0.0.1:4318");
  EXPECT_FALSE(environment.contains("OTHER_LISTEN"));
}

}  // namespace
}  // namespace faultline::testing
