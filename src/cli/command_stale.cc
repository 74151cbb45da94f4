#include "cli/commands.h"

namespace faultline::cli {

void add_stale_command(CLI::App& /*app*/, Action& /*chosen*/) {}

}  // namespace faultline::cli
