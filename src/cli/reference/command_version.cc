#include "cli/commands.h"

namespace faultline::cli {

void add_version_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("version", "Print the version");
  command->callback([&chosen] {
    chosen = [](Context&) -> Expected<CommandResult> {
      return CommandResult{.text = "faultline " FAULTLINE_VERSION "\n",
                           .json = {{"version", FAULTLINE_VERSION}}};
    };
  });
}

}  // namespace faultline::cli
