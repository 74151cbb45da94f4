#pragma once

#include <optional>

#include "cli/commands.h"
#include "faultline/job.h"

namespace faultline::cli {

/// Adds the subcommand `list`: of jobs in any state, or in one.
void add_listing(CLI::App& command, Action& chosen, std::optional<JobState> only);

}  // namespace faultline::cli
