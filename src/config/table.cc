#include "config/table.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/dsn.h"
#include "config/values.h"

namespace faultline::config {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr std::size_t kKiB = 1'024;
constexpr std::size_t kMiB = 1'024 * kKiB;
constexpr std::size_t kGiB = 1'024 * kMiB;

Error wrong(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

Row row(std::string name, std::string value_name, std::string help) {
  return {.setting = {.name = std::move(name),
                      .value_name = std::move(value_name),
                      .default_value = {},
                      .help = std::move(help)},
          .read = {},
          .write = {}};
}

/// A number in some spelling, between two others.
template <class Value, class Parse, class Write>
Row ranged(Row row, Value Settings::* member, Value least, Value most, std::string what,
           const std::string& how, const Parse& parse, const Write& write) {
  const std::string hint = how + ", from " + write(least) + " to " + write(most);
  row.read = [=](Settings& settings, std::string_view text) -> std::optional<Error> {
    const auto value = parse(text);
    if (!value) return wrong(quoted(text) + " is not " + what, hint);
    if (*value < least || *value > most) return wrong(quoted(text) + " is out of range", hint);
    settings.*member = *value;
    return std::nullopt;
  };
  row.write = [=](const Settings& settings) { return write(settings.*member); };
  return row;
}

Row count(std::string name, std::size_t Settings::* member, std::size_t least, std::size_t most,
          std::string help) {
  auto made =
      ranged(row(std::move(name), "N", std::move(help)), member, least, most, "a number",
             "write a whole number", parse_count, [](std::size_t value) { return std::to_string(value); });
  made.bare = true;
  return made;
}

Row size(std::string name, std::size_t Settings::* member, std::size_t least, std::size_t most,
         std::string help) {
  return ranged(row(std::move(name), "BYTES", std::move(help)), member, least, most, "a size",
                "write a number of bytes, or one with KiB, MiB or GiB such as 16MiB", parse_size, write_size);
}

Row duration(std::string name, milliseconds Settings::* member, milliseconds least, milliseconds most,
             std::string help) {
  return ranged(row(std::move(name), "DURATION", std::move(help)), member, least, most, "a duration",
                "write a whole number with ms, s, m, h or d such as 10s", parse_duration, write_duration);
}

/// A duration, or none: 0 is the same as off.
Row duration_or_off(std::string name, milliseconds Settings::* member, milliseconds least, milliseconds most,
                    std::string help) {
  auto made = duration(std::move(name), member, least, most, std::move(help));
  made.read = [=, read = std::move(made.read)](Settings& settings,
                                               std::string_view text) -> std::optional<Error> {
    if (text == "off" || parse_duration(text) == 0ms) {
      settings.*member = 0ms;
      return std::nullopt;
    }
    auto problem = read(settings, text);
    if (problem) problem->hint += "; or off";
    return problem;
  };
  made.write = [=, write = std::move(made.write)](const Settings& settings) {
    return settings.*member == 0ms ? std::string{"off"} : write(settings);
  };
  return made;
}

Row boolean(std::string name, bool Settings::* member, std::string help) {
  auto made = row(std::move(name), "BOOL", std::move(help));
  made.bare = true;
  made.read = [=](Settings& settings, std::string_view text) -> std::optional<Error> {
    if (text != "true" && text != "false")
      return wrong(quoted(text) + " is neither true nor false", "write true or false");
    settings.*member = text == "true";
    return std::nullopt;
  };
  made.write = [=](const Settings& settings) { return settings.*member ? "true" : "false"; };
  return made;
}

Row address(std::string name, std::optional<HostPort> Settings::* member, std::string help) {
  auto made = row(std::move(name), "HOST:PORT", std::move(help));
  made.read = [=](Settings& settings, std::string_view text) -> std::optional<Error> {
    if (text == "off") {
      settings.*member = std::nullopt;
      return std::nullopt;
    }
    auto parsed = parse_listen_address(text);
    if (!parsed)
      return wrong(quoted(text) + " is not an address: " + parsed.error(),
                   std::string{kHostPortHint} + "; or off");
    settings.*member = std::move(*parsed);
    return std::nullopt;
  };
  made.write = [=](const Settings& settings) {
    return settings.*member ? (settings.*member)->to_string() : std::string{"off"};
  };
  return made;
}

/// Text that `check` says nothing against.
Row text(std::string name, std::string value_name, std::string Settings::* member,
         std::function<std::optional<Error>(std::string_view)> check, std::string help) {
  auto made = row(std::move(name), std::move(value_name), std::move(help));
  made.read = [=, check = std::move(check)](Settings& settings,
                                            std::string_view value) -> std::optional<Error> {
    if (auto problem = check(value)) return problem;
    settings.*member = std::string{value};
    return std::nullopt;
  };
  made.write = [=](const Settings& settings) { return settings.*member; };
  return made;
}

std::optional<Error> check_choice(std::string_view value, const std::vector<std::string>& known) {
  if (std::ranges::find(known, value) != known.end()) return std::nullopt;
  std::string all;
  for (const std::string& word : known)
    all += (all.empty() ? "" : word == known.back() ? " or " : ", ") + word;
  return wrong(quoted(value) + " is not one of its values", "write " + all);
}

std::optional<Error> check_file_name(std::string_view value) {
  if (!value.contains('\0')) return std::nullopt;
  return wrong("a file's name has no NUL in it", "name a file");
}

/// Does not repeat the value: what is no URL hides its password in a place unknown.
std::optional<Error> check_database(std::string_view value) {
  if (value.empty() || (looks_like_a_dsn(value) && !value.contains('\0'))) return std::nullopt;
  return wrong("this is not a PostgreSQL URL",
               "write it as postgresql://user@host:5432/database, or as \"host=… dbname=…\"");
}

/// It is sent as it is in an HTTP header, and browsers compare it to the letter.
std::optional<Error> check_origin(std::string_view value) {
  if (value.empty() || value == "*") return std::nullopt;
  const auto scheme = value.find("://");
  const std::string_view host = scheme == std::string_view::npos ? "" : value.substr(scheme + 3);
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '-' || c == ':' || c == '[' || c == ']';
  };
  const bool http = value.starts_with("http://") || value.starts_with("https://");
  if (http && !host.empty() && std::ranges::all_of(host, allowed)) return std::nullopt;
  return wrong(quoted(value) + " is not an origin",
               "write it as https://app.example.com, without a path; or * for all");
}

/// As they stand in URLs, and as browsers send them.
std::optional<Error> check_hosts(std::string_view value) {
  while (!value.empty()) {
    const std::string_view name = value.substr(0, value.find(','));
    const bool address = name.starts_with('[') && name.ends_with(']');
    const auto allowed = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
             c == '-' || c == '_' || (address && (c == ':' || c == '[' || c == ']'));
    };
    if (name.empty() || !std::ranges::all_of(name, allowed))
      return wrong(
          quoted(name) + " is not a host's name",
          "write names without ports, separated by commas alone, such as queue.example.com,[fd00::1]");
    value.remove_prefix(name.size());
    if (value == ",") return wrong("after the last comma there is no name", "leave that comma out");
    if (!value.empty()) value.remove_prefix(1);
  }
  return std::nullopt;
}

Row choice(std::string name, std::string Settings::* member, std::vector<std::string> known,
           std::string help) {
  std::string value_name;
  for (const std::string& word : known) value_name += (value_name.empty() ? "" : "|") + word;
  return text(
      std::move(name), std::move(value_name), member,
      [known = std::move(known)](std::string_view value) { return check_choice(value, known); },
      std::move(help));
}

Row file(std::string name, std::string Settings::* member, std::string help) {
  return text(std::move(name), "FILE", member, check_file_name, std::move(help));
}

Row auth_row() {
  auto made = row("auth", "none|keys", "Whether callers must have an API key.");
  made.read = [](Settings& settings, std::string_view value) -> std::optional<Error> {
    if (auto problem = check_choice(value, {"none", "keys"})) return problem;
    settings.auth = value == "keys" ? Auth::keys : Auth::none;
    return std::nullopt;
  };
  made.write = [](const Settings& settings) { return settings.auth == Auth::keys ? "keys" : "none"; };
  return made;
}

Row database_row() {
  auto made = text("database", "URL", &Settings::database, check_database,
                   "PostgreSQL URL, also DATABASE_URL; empty: the private PostgreSQL.");
  made.setting.secret = true;
  made.setting.other_variable = "DATABASE_URL";
  made.write = [](const Settings& settings) { return without_passwords(settings.database); };
  return made;
}

/// The whole of it is judged when the server starts.
std::optional<Error> check_otlp_endpoint(std::string_view value) {
  if (value.empty() ||
      ((value.starts_with("http://") || value.starts_with("https://")) && !value.contains('\0')))
    return std::nullopt;
  return wrong(quoted(value) + " is not an http:// or https:// URL",
               "write it as http://127.0.0.1:4318 or https://collector.example.com:4318");
}

Row otlp_endpoint_row() {
  auto made =
      text("otlp_endpoint", "URL", &Settings::otlp_endpoint, check_otlp_endpoint,
           "Where spans of added jobs are sent by OTLP/HTTP, also OTEL_EXPORTER_OTLP_ENDPOINT; empty: "
           "nowhere.");
  made.setting.other_variable = "OTEL_EXPORTER_OTLP_ENDPOINT";
  return made;
}

Row otlp_ca_row() {
  auto made =
      file("otlp_ca", &Settings::otlp_ca,
           "PEM file with the authorities that the certificate of an https:// otlp_endpoint may be of, "
           "also OTEL_EXPORTER_OTLP_CERTIFICATE; empty: those of the system.");
  made.setting.other_variable = "OTEL_EXPORTER_OTLP_CERTIFICATE";
  return made;
}

Row ratio(std::string name, double Settings::* member, std::string help) {
  auto made = ranged(row(std::move(name), "RATIO", std::move(help)), member, 0.0, 1.0, "a ratio",
                     "write a number such as 0.1", parse_ratio, write_ratio);
  made.bare = true;
  return made;
}

std::vector<Row> make_table() {
  using S = Settings;
  std::vector<Row> rows{
      database_row(),
      address("listen", &S::listen, "Where HTTP listens, or off."),
      address("grpc", &S::grpc, "Where gRPC listens, or off."),
      auth_row(),
      boolean("allow_insecure", &S::allow_insecure,
              "Listen beyond this machine without keys or without TLS, because something else keeps "
              "strangers out."),
      file("tls_cert", &S::tls_cert,
           "PEM file with the server's certificate chain; read again when it changes."),
      file("tls_key", &S::tls_key,
           "PEM file with the certificate's private key; read again when it changes."),
      file("tls_client_ca", &S::tls_client_ca,
           "PEM file with an authority; gRPC clients must have a certificate of it (mTLS), and a key as well "
           "if "
           "auth is keys; read again when it changes."),
      count("database_connections", &S::database_connections, 1, 1'000, "Connections to the database."),
      boolean("watchdog", &S::watchdog, "Whether this server also ends leases that ran out."),
      duration("metrics_interval", &S::metrics_interval, 100ms, 1h,
               "Between two looks at the depth of queues and the database's health, for the metrics."),
      duration_or_off("audit_interval", &S::audit_interval, 1s, 24h * 7,
                      "Between two checks that the promises hold in the database, or off."),
      count("waiting_max", &S::waiting_max, 1, 1'000'000,
            "Jobs, leases and calls that may wait for the database; more are refused."),
      count("streams_max", &S::streams_max, 1, 1'000'000, "Workers' streams at once; more are refused."),
      count("grpc_connections_max", &S::grpc_connections_max, 1, 1'000'000,
            "gRPC connections at once; those without an admitted call make room for others."),
      count("batch_max", &S::batch_max, 1, 100'000, "Jobs, leases or results in one call."),
      size("payload_max", &S::payload_max, 1, 256 * kMiB, "The largest payload of a job."),
      count("json_depth_max", &S::json_depth_max, 1, 10'000, "How deep JSON may be nested."),
      count("http_connections_max", &S::http_connections_max, 1, 1'000'000,
            "HTTP connections at once; the longest idle make room for others."),
      size("http_header_max", &S::http_header_max, kKiB, kMiB, "The largest head of an HTTP request."),
      size("http_body_max", &S::http_body_max, kKiB, kGiB, "The largest body of an HTTP request."),
      duration("http_header_timeout", &S::http_header_timeout, 1ms, 24h,
               "For a request's head to be complete."),
      duration("http_body_timeout", &S::http_body_timeout, 1ms, 24h, "For a request's body to be complete."),
      duration("http_idle_timeout", &S::http_idle_timeout, 1ms, 24h,
               "For a kept connection without a request."),
      duration("http_write_timeout", &S::http_write_timeout, 1ms, 24h, "For a client to take an answer."),
      text("cors_origin", "ORIGIN", &S::cors_origin, check_origin,
           "Web pages of this origin may call the HTTP API; empty: none."),
      text("hosts", "NAMES", &S::hosts, check_hosts,
           "Names under which HTTP may be called without keys, beside localhost and the address of listen, "
           "separated by commas."),
      duration("drain_delay", &S::drain_delay, 0ms, 1h,
               "Between \"not ready\" and closing, for the load balancer to notice."),
      duration("drain_max", &S::drain_max, 0ms, 24h, "For calls under way when the server stops."),
      otlp_endpoint_row(),
      otlp_ca_row(),
      ratio("otlp_sample_ratio", &S::otlp_sample_ratio,
            "Which part of the jobs that come without a trace begins one."),
      choice("log_format", &S::log_format, {"text", "json"}, "How log lines are written."),
      choice("log_level", &S::log_level, {"debug", "info", "warning", "error"}, "From which severity on."),
      boolean("access_log", &S::access_log,
              "Whether every answer has a line in the log, with who asked for what."),
  };
  const Settings defaults;
  for (Row& made : rows) made.setting.default_value = made.write(defaults);
  return rows;
}

}  // namespace

const std::vector<Row>& table() {
  static const std::vector<Row> rows = make_table();
  return rows;
}

const Row* find_row(std::string_view name) {
  const auto found = std::ranges::find(table(), name, [](const Row& known) { return known.setting.name; });
  return found == table().end() ? nullptr : &*found;
}

}  // namespace faultline::config
