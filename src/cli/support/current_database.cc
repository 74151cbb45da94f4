#include "cli/support/current_database.h"

#include "cli/commands.h"

namespace faultline::cli {

Expected<pg::Connection> connect_to_current(Context& context) {
  auto connection = context.connect();
  if (connection && context.uses_private_postgres()) {
    if (auto migrated = migrate(*connection, {}); !migrated) return std::unexpected(migrated.error());
  }
  return connection;
}

}  // namespace faultline::cli
