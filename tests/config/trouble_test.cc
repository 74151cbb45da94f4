// What is refused, and in which words: each names the setting, the place, and what to do.

#include <gmock/gmock.h>

#include "config/settings.h"
#include "support/scratch.h"

namespace faultline::testing {
namespace {

using config::Sources;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Error error_of(std::string_view toml, const Sources& sources = {}) {
  auto loaded = config::load_text(toml, "faultline.toml", sources);
  if (!loaded) {
    EXPECT_EQ(loaded.error().code, ErrorCode::invalid_argument);
    EXPECT_FALSE(loaded.error().hint.empty()) << loaded.error().message;
    return std::move(loaded.error());
  }
  ADD_FAILURE() << "accepted: " << toml;
  return {};
}

struct Wrong {
  std::string name;
  std::string toml;
  std::string message;  ///< is in the message
  std::string hint;     ///< is in the hint
};

std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.name; }

class WrongFileTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongFileTest, is_refused) {
  const Error error = error_of(GetParam().toml);
  EXPECT_THAT(error.message, HasSubstr(GetParam().message));
  EXPECT_THAT(error.hint, HasSubstr(GetParam().hint));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFileTest,
    ::testing::Values(
        Wrong{"not_toml", "listen = \n", "faultline.toml:1: this is not TOML", "config example"},
        Wrong{"not_utf8", "listen = \"\xff\"", "this is not TOML", "config example"},
        Wrong{"twice", "waiting_max = 1\nwaiting_max = 2\n", "faultline.toml:2: this is not TOML",
              "config example"},
        Wrong{"too_large", "#" + std::string(1'048'576, 'x'), "more than 1 MiB", "settings"},
        Wrong{"unknown", "\ncolour = 1", "faultline.toml:2: there is no setting \"colour\"",
              "config example"},
        Wrong{"misspelt", "listne = ':1'", "there is no setting \"listne\"", "did you mean listen?"},
        Wrong{"flag_spelling", "http-body-max = 1", "\"http-body-max\"", "did you mean http_body_max?"},
        Wrong{"table", "[http]\nbody_max = 1", "\"http\" is a table", "http_body_max"},
        Wrong{"table_of_a_setting", "[listen]\nport = 1", "listen (faultline.toml:1)", "write a string"},
        Wrong{"array", "listen = [':1']", "listen (faultline.toml:1)", "write a string"},
        Wrong{"fraction", "waiting_max = 1.5", "waiting_max (faultline.toml:1)", "whole number"},
        Wrong{"date", "drain_max = 2024-01-01", "drain_max (faultline.toml:1)", "write a string"},
        Wrong{"size", "http_body_max = '12q'", "http_body_max (faultline.toml:1): \"12q\" is not a size",
              "KiB, MiB or GiB"},
        Wrong{"size_too_small", "http_body_max = 1", "\"1\" is out of range", "from 1KiB to 1GiB"},
        Wrong{"size_too_large", "http_body_max = '2GiB'", "\"2GiB\" is out of range", "from 1KiB to 1GiB"},
        Wrong{"count", "waiting_max = 'many'", "waiting_max (faultline.toml:1): \"many\" is not a number",
              "from 1 to 1000000"},
        Wrong{"count_zero", "database_connections = 0", "\"0\" is out of range", "from 1 to 1000"},
        Wrong{"count_negative", "database_connections = -1", "\"-1\" is not a number", "from 1 to 1000"},
        Wrong{"duration_without_unit", "drain_max = 10",
              "drain_max (faultline.toml:1): \"10\" is not a duration", "such as 10s"},
        Wrong{"duration_too_long", "http_idle_timeout = '2d'", "out of range", "from 1ms to 1d"},
        Wrong{"duration_zero", "http_idle_timeout = '0s'", "out of range", "from 1ms to 1d"},
        Wrong{"boolean", "watchdog = 'maybe'",
              "watchdog (faultline.toml:1): \"maybe\" is neither true nor false", "true or false"},
        Wrong{"boolean_number", "watchdog = 1", "neither true nor false", "true or false"},
        Wrong{"address", "listen = '8000'", "listen (faultline.toml:1): \"8000\" is not an address",
              "HOST:PORT"},
        Wrong{"address_off", "listen = 'OFF'", "is not an address", "or off"},
        Wrong{"auth", "auth = 'key'", "auth (faultline.toml:1): \"key\" is not one of its values",
              "write none or keys"},
        Wrong{"log_level", "log_level = 'warn'", "\"warn\" is not one of its values",
              "write debug, info, warning or error"},
        Wrong{"log_format", "log_format = 'xml'", "\"xml\" is not one of its values", "write text or json"},
        Wrong{"origin_with_path", "cors_origin = 'https://a.example/'", "is not an origin", "without a path"},
        Wrong{"host_with_port", "hosts = 'a.example:8000'", "is not a host's name", "without ports"},
        Wrong{"host_after_a_blank", "hosts = 'a.example, b.example'", "is not a host's name", "commas alone"},
        Wrong{"host_missing", "hosts = 'a.example,'", "there is no name", "comma"},
        Wrong{"origin_without_scheme", "cors_origin = 'a.example'", "is not an origin", "https://"},
        Wrong{"origin_with_a_header", "cors_origin = \"https://a\\r\\nX: y\"", "is not an origin",
              "https://"},
        Wrong{"file_with_nul", "tls_cert = \"a\\u0000b\"", "tls_cert (faultline.toml:1)", "name a file"},
        Wrong{"cert_without_key", "tls_cert = 'a'",
              "tls_cert (faultline.toml:1): a certificate needs its key", "tls_cert and tls_key"},
        Wrong{"key_without_cert", "tls_key = 'a'", "tls_key (faultline.toml:1)", "tls_cert and tls_key"},
        Wrong{"client_ca_without_cert", "tls_client_ca = 'a'", "tls_client_ca (faultline.toml:1)",
              "tls_cert and tls_key"},
        Wrong{"client_ca_without_grpc", "grpc='off'\ntls_cert='a'\ntls_key='b'\ntls_client_ca = 'a'",
              "tls_client_ca (faultline.toml:4)", "grpc"},
        Wrong{"nothing_to_serve", "listen = 'off'\ngrpc = 'off'",
              "listen (faultline.toml:1): listen and grpc are both", "at least one"},
        Wrong{"one_port_for_both", "listen = ':7'\ngrpc = ':7'", "grpc (faultline.toml:2): 127.0.0.1:7",
              "a port each"},
        Wrong{"database", "database = 'mysql://joe:hunter2@h/db'", "database (faultline.toml:1)",
              "postgresql://"}),
    [](const auto& test) { return test.param.name; });

TEST(WrongSourceTest, a_wrong_flag_and_a_wrong_variable_are_named_as_such) {
  EXPECT_EQ(error_of("", {.flags = {{"http_body_max", "12q"}}}).message,
            "http_body_max (--http-body-max): \"12q\" is not a size");
  EXPECT_EQ(error_of("", {.environment = {{"FAULTLINE_HTTP_BODY_MAX", "12q"}}}).message,
            "http_body_max (FAULTLINE_HTTP_BODY_MAX): \"12q\" is not a size");
  EXPECT_THAT(error_of("", {.environment = {{"DATABASE_URL", "nonsense"}}}).message,
              StartsWith("database (DATABASE_URL): "));
}

TEST(WrongSourceTest, unknown_flags_and_variables_are_refused_with_what_was_meant) {
  EXPECT_THAT(error_of("", {.flags = {{"listne", ":1"}}}).describe(),
              AllOf(HasSubstr("--listne"), HasSubstr("did you mean --listen?")));
  EXPECT_THAT(error_of("", {.environment = {{"FAULTLINE_LISTNE", ":1"}}}).describe(),
              AllOf(HasSubstr("FAULTLINE_LISTNE"), HasSubstr("did you mean FAULTLINE_LISTEN?")));
  EXPECT_THAT(error_of("", {.environment = {{"FAULTLINE_COLOUR", ""}}}).describe(),
              HasSubstr("FAULTLINE_COLOUR"));
  EXPECT_THAT(error_of("", {.environment = {{"FAULTLINE_PORT", "8000"}}}).describe(),
              HasSubstr("FAULTLINE_PORT"));
}

TEST(WrongSourceTest, variables_of_others_are_left_alone) {
  const Sources sources{.environment = {{"PATH", "/bin"},
                                        {"FAULTLINE_CONFIG", "somewhere.toml"},
                                        {"FAULTLINE_API_KEY", "flk_1_2"},
                                        {"FAULTLINE_PG_BINDIR", "/usr/lib/postgresql/15/bin"},
                                        {"FAULTLINE_JOBS", "2"},
                                        {"FAULTLINE_PROPERTY_SEED", "1"},
                                        // Of Kubernetes, for services named faultline and faultline-grpc.
                                        {"FAULTLINE_SERVICE_HOST", "10.0.0.1"},
                                        {"FAULTLINE_SERVICE_PORT", "8000"},
                                        {"FAULTLINE_SERVICE_PORT_HTTP", "8000"},
                                        {"FAULTLINE_PORT", "tcp://10.0.0.1:8000"},
                                        {"FAULTLINE_PORT_8000_TCP", "tcp://10.0.0.1:8000"},
                                        {"FAULTLINE_PORT_8000_TCP_PROTO", "tcp"},
                                        {"FAULTLINE_GRPC_SERVICE_HOST", "10.0.0.1"},
                                        {"FAULTLINE_GRPC_PORT_8001_TCP_ADDR", "10.0.0.1"}}};
  EXPECT_TRUE(config::load_text("", "", sources).has_value());
}

TEST(WrongSourceTest, no_error_shows_a_password) {
  const std::string url = "postgresql://joe:hunter2@db/jobs";
  const std::vector<Error> errors{
      error_of("database = " + url),
      error_of("database = '" + url),
      error_of("database = 'x" + url + "'"),
      error_of("listen = '" + url + "'"),
      error_of("listen = 'password=hunter2'"),
      error_of("databse = '" + url + "'"),
      error_of("", {.flags = {{"listen", url}}}),
      error_of("", {.flags = {{"database", "joe:hunter2@db/jobs"}}}),
      error_of("", {.environment = {{"FAULTLINE_DATABSE", url}}}),
      error_of("", {.environment = {{"DATABASE_URL", "mysql://joe:hunter2@db/jobs"}}}),
  };
  for (const Error& error : errors) EXPECT_THAT(error.describe(), Not(HasSubstr("hunter2")));
}

TEST(WrongSourceTest, a_file_that_cannot_be_read_is_named_with_who_named_it) {
  const ScratchDir scratch;
  const auto by_flag = config::load({.file = scratch / "none.toml"});
  const auto by_variable = config::load({.environment = {{"FAULTLINE_CONFIG", scratch.path()}}});

  ASSERT_FALSE(by_flag.has_value());
  EXPECT_THAT(by_flag.error().message,
              AllOf(HasSubstr("config (--config)"), HasSubstr("none.toml"), HasSubstr("No such file")));
  ASSERT_FALSE(by_variable.has_value());
  EXPECT_THAT(by_variable.error().message, AllOf(HasSubstr("FAULTLINE_CONFIG"), HasSubstr("directory")));
}

TEST(WrongSourceTest, certificates_that_cannot_be_read_are_found_when_files_are_looked_at) {
  const ScratchDir scratch;
  write_file(scratch / "cert.pem", "cert");
  write_file(scratch / "empty.pem", "");
  const Sources missing{.flags = {{"tls_cert", scratch / "cert.pem"}, {"tls_key", scratch / "none.pem"}}};
  const Sources empty{.flags = {{"tls_cert", scratch / "empty.pem"}, {"tls_key", scratch / "cert.pem"}}};
  const Sources directory{.flags = {{"tls_cert", scratch.path()}, {"tls_key", scratch / "cert.pem"}}};
  const Sources good{.flags = {{"tls_cert", scratch / "cert.pem"}, {"tls_key", scratch / "cert.pem"}}};

  EXPECT_TRUE(config::load_text("", "", missing).has_value());
  EXPECT_THAT(config::load(missing).error().message,
              AllOf(StartsWith("tls_key (--tls-key)"), HasSubstr("No such file")));
  EXPECT_THAT(config::load(empty).error().message,
              AllOf(StartsWith("tls_cert (--tls-cert)"), HasSubstr("empty")));
  EXPECT_THAT(config::load(directory).error().message, StartsWith("tls_cert (--tls-cert)"));
  EXPECT_TRUE(config::load(good).has_value());
}

// ---- Closed by default

constexpr std::string_view kTls = "tls_cert = 'c'\ntls_key = 'k'\n";

bool accepted(const std::string& toml) { return config::load_text(toml, "faultline.toml", {}).has_value(); }

TEST(ExposureTest, beyond_this_machine_keys_and_tls_are_needed_or_an_explicit_word) {
  const std::string tls{kTls};
  for (const std::string name : {"listen", "grpc"}) {
    const std::string open = name + " = '0.0.0.0:1'\n";
    EXPECT_FALSE(accepted(open)) << name;
    EXPECT_FALSE(accepted(open + "auth = 'keys'\n")) << name;
    EXPECT_FALSE(accepted(open + tls)) << name;
    EXPECT_TRUE(accepted(open + tls + "auth = 'keys'\n")) << name;
    EXPECT_TRUE(accepted(open + "allow_insecure = true\n")) << name;
    for (const std::string host : {"[::]", "10.0.0.1", "example.com"})
      EXPECT_FALSE(accepted(name + " = '" + host + ":1'\n")) << name << host;
    for (const std::string host : {"", "127.0.0.1", "localhost", "[::1]"})
      EXPECT_TRUE(accepted(name + " = '" + host + ":1'\n")) << name << host;
  }
}

TEST(ExposureTest, certificates_of_clients_serve_for_grpc_and_not_for_http) {
  const std::string mutual = std::string{kTls} + "tls_client_ca = 'ca'\n";

  EXPECT_TRUE(accepted(mutual + "grpc = '0.0.0.0:1'\n"));
  EXPECT_FALSE(accepted(mutual + "listen = '0.0.0.0:1'\n"));
}

TEST(ExposureTest, the_error_says_what_is_missing_and_what_to_do) {
  const Error both = error_of("listen = '0.0.0.0:1'");
  EXPECT_THAT(both.message, AllOf(StartsWith("listen (faultline.toml:1): 0.0.0.0:1 can be reached"),
                                  HasSubstr("auth is none"), HasSubstr("no TLS")));
  EXPECT_THAT(both.hint, AllOf(HasSubstr("auth to keys"), HasSubstr("tls_cert and tls_key"),
                               HasSubstr("127.0.0.1"), HasSubstr("allow_insecure")));
  const Error tls = error_of("grpc = '0.0.0.0:1'\nauth = 'keys'");
  EXPECT_THAT(tls.message,
              AllOf(StartsWith("grpc (faultline.toml:1)"), Not(HasSubstr("auth")), HasSubstr("no TLS")));
  const Error keys = error_of("listen = '0.0.0.0:1'\n" + std::string{kTls});
  EXPECT_THAT(keys.message, AllOf(HasSubstr("auth is none"), Not(HasSubstr("no TLS"))));
}

}  // namespace
}  // namespace faultline::testing
