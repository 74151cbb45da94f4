#pragma once

#include <string>
#include <vector>

#include "faultline/job.h"

namespace faultline::cli {

/// A refused write for people, as cells of a table …
[[nodiscard]] std::vector<std::string> stale_header();
[[nodiscard]] std::vector<std::string> stale_cells(const StaleWrite& write);
/// … and in one line.
[[nodiscard]] std::string stale_line(const StaleWrite& write);

}  // namespace faultline::cli
