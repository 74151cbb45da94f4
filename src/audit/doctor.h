#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "faultline/error.h"
#include "faultline/time.h"
#include "pg/connection.h"

namespace faultline::audit {

enum class Level {
  ok,
  warning,  ///< look at it when you can
  danger,   ///< jobs may be lost, or are not worked off
};
[[nodiscard]] std::string_view to_string(Level level);

/// One thing that was looked at.
struct Finding {
  std::string name;  ///< stable, snake_case
  Level level = Level::ok;
  std::string seen;  ///< what there is
  std::string todo;  ///< what to do about it; empty when it is fine
};

/// Looks at a database and its server for what endangers jobs: settings, clock, rights, schema, bloat and who
/// causes it, standbys, connections, leases that nobody ends. Changes nothing. Works with any login; one that
/// may not see the sessions of others sees less. A database without Faultline's schema is a finding, not an
/// error.
[[nodiscard]] Expected<std::vector<Finding>> examine(pg::Connection& connection, Deadline until);

}  // namespace faultline::audit
