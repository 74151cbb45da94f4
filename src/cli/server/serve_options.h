#pragma once

#include "cli/commands.h"
#include "config/settings.h"

namespace faultline::cli {

/// Gives a command --config and an option for each setting of a server. What is given goes to `sources`,
/// which must outlive the parsing.
void add_settings(CLI::App& command, config::Sources& sources);

/// The settings as the command line, this process's environment and the file say, in that order. A --database
/// that stands before the subcommand counts too.
[[nodiscard]] Expected<config::Loaded> load_settings(const Context& context, config::Sources sources);

/// The database that the settings name; else Faultline's own, whose schema is then brought up to date: nobody
/// else would.
[[nodiscard]] Expected<std::string> database_for(Context& context, const config::Settings& settings);

}  // namespace faultline::cli
