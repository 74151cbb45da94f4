#pragma once

#include "cli/support/context.h"

namespace faultline::cli {

/// A connection to the database. The private PostgreSQL is migrated on the way; another one is taken as it
/// is.
[[nodiscard]] Expected<pg::Connection> connect_to_current(Context& context);

}  // namespace faultline::cli
