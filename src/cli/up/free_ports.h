#pragma once

#include "cli/support/output.h"
#include "config/settings.h"

namespace faultline::cli {

/// A failure names the first address of these settings on which another program listens, and the option that
/// changes it. Only a look: another may take it a moment later, and then the server says so.
[[nodiscard]] Expected<void> check_ports(const config::Settings& settings);

}  // namespace faultline::cli
