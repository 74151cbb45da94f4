#pragma once

#include <libpq-fe.h>

#include "pg/connection.h"

namespace faultline::pg {

/// Connects without blocking past the deadline, host by host as the DSN lists them; a host that does
/// not answer costs at most its share of the time. Only name resolution can block longer.
/// The result is open and in non-blocking mode, and the caller's to PQfinish.
[[nodiscard]] Expected<PGconn*> connect(const ConnectOptions& options, Deadline deadline);

}  // namespace faultline::pg
