#include "cli/server/serve_options.h"

namespace faultline::cli {
namespace {

std::string help_of(const config::Setting& setting) {
  const std::string shown = setting.default_value.empty() ? "none" : setting.default_value;
  return setting.help + " [" + setting.environment() + ", default: " + shown + "]";
}

}  // namespace

void add_settings(CLI::App& command, config::Sources& sources) {
  command
      .add_option_function<std::string>(
          "--config", [&sources](const std::string& file) { sources.file = file; },
          "TOML file with settings; flags and the environment come before it [FAULTLINE_CONFIG]")
      ->type_name("FILE");
  for (const config::Setting& setting : config::all_settings()) {
    const auto take = [&sources, name = setting.name](const std::string& value) {
      sources.flags[name] = value;
    };
    if (setting.value_name == "BOOL")
      command.add_flag(setting.flag())->description(help_of(setting))->each(take);
    else
      command.add_option_function<std::string>(setting.flag(), take, help_of(setting))
          ->type_name(setting.value_name);
  }
}

Expected<config::Loaded> load_settings(const Context& context, config::Sources sources) {
  if (!context.options().database.empty()) sources.flags.emplace("database", context.options().database);
  sources.environment = config::process_environment();
  auto loaded = config::load(sources);
  if (loaded) return std::move(*loaded);
  return std::unexpected(Failure{.code = "invalid_setting",
                                 .message = loaded.error().message,
                                 .hint = loaded.error().hint,
                                 .exit_code = ExitCode::wrong_usage});
}

Expected<std::string> database_for(Context& context, const config::Settings& settings) {
  if (!settings.database.empty()) return settings.database;
  auto url = context.database_url();
  if (!url) return url;
  auto connection = context.connect_to(*url);
  if (!connection) return std::unexpected(connection.error());
  if (const auto migrated = migrate(*connection, {}); !migrated) return std::unexpected(migrated.error());
  return url;
}

}  // namespace faultline::cli
