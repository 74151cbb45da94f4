#include "config/unknown.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/edit_distance.h"
#include "config/settings.h"
#include "config/values.h"

namespace faultline::config {
namespace {

constexpr std::string_view kPrefix = "FAULTLINE_";

/// `spelling` turns a setting into the kind of name that was given.
template <class Spelling>
Error unknown(std::string message, std::string_view name, const Spelling& spelling) {
  std::vector<std::string> known;
  for (const Setting& setting : all_settings()) known.push_back(spelling(setting));
  const auto meant = nearest(name, known);
  return {.code = ErrorCode::invalid_argument,
          .message = std::move(message),
          .hint = meant ? "did you mean " + *meant + "?"
                        : std::string{"`faultline config example` shows all settings"}};
}

/// What Kubernetes sets in every pod for a service whose name begins with "faultline".
bool is_of_a_kubernetes_service(std::string_view variable, std::string_view value) {
  if (variable.ends_with("_SERVICE_HOST") || variable.contains("_SERVICE_PORT")) return true;
  const bool is_url = value.starts_with("tcp://") || value.starts_with("udp://");
  const auto port = variable.find("_PORT_");
  const bool numbered = port != std::string_view::npos && port + 6 < variable.size() &&
                        variable[port + 6] >= '0' && variable[port + 6] <= '9';
  return numbered || (variable.ends_with("_PORT") && is_url);
}

}  // namespace

Error unknown_in_file(std::string_view name, const std::string& where) {
  return unknown(where + ": there is no setting " + quoted(name), name,
                 [](const Setting& s) { return s.name; });
}

Error unknown_flag(std::string_view name) {
  Setting given;
  given.name = std::string{name};
  return unknown("there is no setting " + given.flag(), given.flag(),
                 [](const Setting& s) { return s.flag(); });
}

Error unknown_variable(std::string_view variable) {
  auto error = unknown("the environment has " + std::string{variable} + ", and there is no such setting",
                       variable, [](const Setting& s) { return s.environment(); });
  error.hint += "; unset it if it is meant for another program";
  return error;
}

bool is_another_variable(std::string_view variable, std::string_view value) {
  // The file itself; a worker's key; the private PostgreSQL; ./dev; and of the tests.
  constexpr std::array<std::string_view, 4> kOthers{"FAULTLINE_CONFIG", "FAULTLINE_API_KEY",
                                                    "FAULTLINE_PG_BINDIR", "FAULTLINE_JOBS"};
  return !variable.starts_with(kPrefix) || std::ranges::find(kOthers, variable) != kOthers.end() ||
         variable.starts_with("FAULTLINE_TEST_") || variable.starts_with("FAULTLINE_PROPERTY_") ||
         is_of_a_kubernetes_service(variable, value);
}

}  // namespace faultline::config
