#pragma once

#include <string_view>

namespace faultline::pg {

/// One SQL statement with a name. The name is the prepared statement's name on direct connections
/// and the statement's name in errors and logs. Statements are constants with static lifetime:
/// one per file in `sql/statements/`, or written in place by tests.
struct Statement {
  std::string_view name;
  std::string_view sql;
};

}  // namespace faultline::pg
