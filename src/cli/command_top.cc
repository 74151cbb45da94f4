#include "cli/commands.h"

namespace faultline::cli {

void add_top_command(CLI::App& /*app*/, Action& /*chosen*/) {}

}  // namespace faultline::cli
