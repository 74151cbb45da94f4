#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_port.h"
#include "faultline/error.h"

namespace faultline::config {

enum class Auth { none, keys };

/// Everything that can be set about a server. Each has one name, in three spellings: `--http-body-max` on the
/// command line, FAULTLINE_HTTP_BODY_MAX in the environment, `http_body_max` in the file.
struct Settings {
  std::string database;  ///< DATABASE_URL is one more spelling of it; empty: the private PostgreSQL
  std::optional<HostPort> listen = HostPort{"127.0.0.1", 8000};  ///< HTTP; nothing ("off"): none
  std::optional<HostPort> grpc = HostPort{"127.0.0.1", 8001};    ///< gRPC; nothing ("off"): none
  Auth auth = Auth::none;
  bool allow_insecure = false;  ///< listen beyond this machine without keys or without TLS
  std::string tls_cert{};       ///< PEM files; both or none. Read again when they change
  std::string tls_key{};
  std::string tls_client_ca{};  ///< gRPC clients must have a certificate of this authority (mTLS), and a key
                                ///< if auth asks for one

  std::size_t database_connections = 4;
  bool watchdog = true;
  std::chrono::milliseconds metrics_interval{5'000};
  std::chrono::milliseconds audit_interval{300'000};  ///< 0 ("off"): never
  std::size_t waiting_max = 10'000;
  std::size_t streams_max = 10'000;
  std::size_t grpc_connections_max = 4'096;
  std::size_t batch_max = 1'000;
  std::size_t payload_max = 1'048'576;
  std::size_t json_depth_max = 128;

  std::size_t http_connections_max = 4'096;
  std::size_t http_header_max = 16'384;
  std::size_t http_body_max = 16'777'216;
  std::chrono::milliseconds http_header_timeout{10'000};  ///< for a request's head to be complete
  std::chrono::milliseconds http_body_timeout{30'000};
  std::chrono::milliseconds http_idle_timeout{60'000};  ///< a kept-alive connection without a request
  std::chrono::milliseconds http_write_timeout{30'000};
  std::string cors_origin{};  ///< empty: no CORS
  std::string hosts{};        ///< names of this server for callers without keys, separated by commas

  std::chrono::milliseconds drain_delay{
      0};  ///< between "not ready" and closing, for the load balancer to notice
  std::chrono::milliseconds drain_max{10'000};  ///< for calls under way

  /// Where spans of jobs that are added go, by OTLP/HTTP; empty: nowhere. OTEL_EXPORTER_OTLP_ENDPOINT is one
  /// more spelling of it.
  std::string otlp_endpoint{};
  std::string otlp_ca{};           ///< PEM file; empty: the system's authorities
  double otlp_sample_ratio = 1.0;  ///< of jobs that come without a trace

  std::string log_format = "text";  ///< text or json
  std::string log_level = "info";   ///< debug info warning error
  bool access_log = false;
};

/// One row per setting: the one place that knows their names, for parsing, --help, docs and `config check`.
struct Setting {
  std::string name;                        ///< snake_case, as in the file
  std::string value_name;                  ///< HOST:PORT, FILE, N, BYTES, DURATION, BOOL …
  std::string default_value;               ///< as it would be written
  std::string help;                        ///< one sentence
  bool secret = false;                     ///< it may hold a password, and is shown without it
  std::string other_variable{};            ///< one more that names it, as other programs do; empty: none
  [[nodiscard]] std::string flag() const;  ///< --http-body-max
  [[nodiscard]] std::string environment() const;  ///< FAULTLINE_HTTP_BODY_MAX
};
[[nodiscard]] const std::vector<Setting>& all_settings();

/// A setting's value, as it would be written; without passwords.
[[nodiscard]] std::string shown(const Settings& settings, std::string_view name);
/// A file with all settings at their defaults and what each is about.
[[nodiscard]] std::string example();

/// Where a value came from, for messages and `config check`.
struct Origin {
  std::string text;  ///< "--listen", "FAULTLINE_LISTEN", "faultline.toml:3" (its line), "default"
};

struct Loaded {
  Settings settings;
  std::map<std::string, Origin> origins;  ///< by name
};

struct Sources {
  std::map<std::string, std::string> flags{};  ///< by name (snake_case), as given
  /// By variable name; only FAULTLINE_* and the other variables of settings are looked at. One that is empty
  /// counts as not set.
  std::map<std::string, std::string> environment{};
  std::optional<std::string> file{};  ///< --config; without it the one that FAULTLINE_CONFIG names, else none
};

/// Flags before environment before file before defaults. An error names the setting and where it was set:
/// `http_body_max (FAULTLINE_HTTP_BODY_MAX): "12q" is not a size; …`. Unknown names are errors, with the
/// nearest known one; so are contradictions, such as listening beyond this machine without keys or TLS, and
/// files that cannot be read.
[[nodiscard]] Expected<Loaded> load(const Sources& sources);
/// The same from the text of a file, and without a look at any other: for tests and fuzzing.
[[nodiscard]] Expected<Loaded> load_text(std::string_view toml, const std::string& file_name,
                                         const Sources& sources);
/// The database that the file of FAULTLINE_CONFIG names, for commands that have no other settings; empty:
/// none.
[[nodiscard]] Expected<std::string> database_in_file(const std::map<std::string, std::string>& environment);
/// Those variables of this process that `load` looks at.
[[nodiscard]] std::map<std::string, std::string> process_environment();

/// A whole number with its unit: "250ms", "10s", "2m", "1h", "90d".
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
/// A number of bytes: "1000", "64KiB", "16MiB", "1GiB".
[[nodiscard]] std::optional<std::size_t> parse_size(std::string_view text);

}  // namespace faultline::config
