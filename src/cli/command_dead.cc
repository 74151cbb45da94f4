#include "cli/commands.h"

namespace faultline::cli {

void add_dead_command(CLI::App& /*app*/, Action& /*chosen*/) {}

}  // namespace faultline::cli
