#include "pg/error.h"

#include <array>
#include <utility>

namespace faultline::pg {
namespace {

using enum Errc;

constexpr std::array kBySqlstate{
    std::pair{std::string_view{"40001"}, serialization_failure},
    std::pair{std::string_view{"40P01"}, deadlock_detected},
    std::pair{std::string_view{"55P03"}, lock_not_available},
    std::pair{std::string_view{"57014"}, query_canceled},
    std::pair{std::string_view{"23505"}, unique_violation},
    std::pair{std::string_view{"23514"}, check_violation},
    std::pair{std::string_view{"23502"}, check_violation},
    std::pair{std::string_view{"23503"}, check_violation},
    std::pair{std::string_view{"42501"}, insufficient_privilege},
    std::pair{std::string_view{"3F000"}, undefined_object},
    std::pair{std::string_view{"42P01"}, undefined_object},
    std::pair{std::string_view{"42883"}, undefined_object},
    std::pair{std::string_view{"42703"}, undefined_object},
    std::pair{std::string_view{"42704"}, undefined_object},
    std::pair{std::string_view{"25006"}, read_only},
    std::pair{std::string_view{"57P01"}, connection_lost},  // terminated by an administrator
    std::pair{std::string_view{"57P02"}, connection_lost},  // another backend crashed
    std::pair{std::string_view{"57P03"}, cannot_connect},   // starting up or shutting down
    std::pair{std::string_view{"57P04"}, connection_lost},  // database dropped
    std::pair{std::string_view{"57P05"}, connection_lost},  // idle_session_timeout
};

constexpr std::array kByClass{
    std::pair{std::string_view{"08"}, connection_lost},  std::pair{std::string_view{"22"}, invalid_value},
    std::pair{std::string_view{"53"}, out_of_resources}, std::pair{std::string_view{"58"}, out_of_resources},
    std::pair{std::string_view{"FL"}, raised},
};

// Trying again cannot help: wrong password or role, no such database, no right to connect.
bool refused_for_good(std::string_view sqlstate) {
  return sqlstate.starts_with("28") || sqlstate == "3D000" || sqlstate == "42501";
}

}  // namespace

std::string_view to_string(Errc code) {
  switch (code) {
    case cannot_connect:
      return "cannot_connect";
    case connection_lost:
      return "connection_lost";
    case outcome_unknown:
      return "outcome_unknown";
    case deadline_exceeded:
      return "deadline_exceeded";
    case serialization_failure:
      return "serialization_failure";
    case deadlock_detected:
      return "deadlock_detected";
    case lock_not_available:
      return "lock_not_available";
    case query_canceled:
      return "query_canceled";
    case unique_violation:
      return "unique_violation";
    case check_violation:
      return "check_violation";
    case invalid_value:
      return "invalid_value";
    case insufficient_privilege:
      return "insufficient_privilege";
    case undefined_object:
      return "undefined_object";
    case read_only:
      return "read_only";
    case out_of_resources:
      return "out_of_resources";
    case raised:
      return "raised";
    case server:
      return "server";
  }
  return "server";
}

bool Error::retryable() const {
  switch (code) {
    case connection_lost:
    case serialization_failure:
    case deadlock_detected:
      return true;
    case cannot_connect:
      return !refused_for_good(sqlstate);
    default:
      return false;
  }
}

bool Error::connection_is_gone() const {
  return code == cannot_connect || code == connection_lost || code == outcome_unknown ||
         code == deadline_exceeded;
}

std::string Error::describe() const {
  std::string line = message;
  if (!detail.empty()) line += "; " + detail;
  if (!hint.empty()) line += "; hint: " + hint;
  if (!statement.empty()) line += " (statement " + statement + ")";
  if (!sqlstate.empty()) line += " [" + sqlstate + "]";
  for (char& c : line) {
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  }
  return line;
}

Errc classify_sqlstate(std::string_view sqlstate) {
  for (const auto& [state, code] : kBySqlstate) {
    if (sqlstate == state) return code;
  }
  for (const auto& [prefix, code] : kByClass) {
    if (sqlstate.starts_with(prefix)) return code;
  }
  return server;
}

}  // namespace faultline::pg
