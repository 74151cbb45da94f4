#include "cli/server/serve_options.h"
#include "cli/support/table_text.h"

namespace faultline::cli {
namespace {

Expected<CommandResult> check(const Context& context, const config::Sources& sources) {
  const auto loaded = load_settings(context, sources);
  if (!loaded) return std::unexpected(loaded.error());
  std::vector<std::vector<std::string>> rows{{"SETTING", "VALUE", "FROM"}};
  nlohmann::json settings = nlohmann::json::array();
  for (const config::Setting& setting : config::all_settings()) {
    const std::string value = config::shown(loaded->settings, setting.name);
    const std::string& origin = loaded->origins.at(setting.name).text;
    rows.push_back({setting.name, value.empty() ? "-" : value, origin});
    settings.push_back({{"name", setting.name},
                        {"value", value},
                        {"default", setting.default_value},
                        {"origin", origin},
                        {"help", setting.help}});
  }
  return CommandResult{.text = table_text(rows), .json = {{"settings", std::move(settings)}}};
}

}  // namespace

void add_config_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("config", "Look at a server's settings");
  command->fallthrough();
  command->require_subcommand(1);

  auto* check_command = command->add_subcommand("check", "Say what every setting is and where it comes from");
  check_command->fallthrough();
  const auto sources = std::make_shared<config::Sources>();
  add_settings(*check_command, *sources);
  check_command->callback(
      [&chosen, sources] { chosen = [sources](Context& context) { return check(context, *sources); }; });

  auto* example_command =
      command->add_subcommand("example", "Print a TOML file with all settings at their defaults");
  example_command->fallthrough();
  example_command->callback([&chosen] {
    chosen = [](Context&) -> Expected<CommandResult> {
      return CommandResult{.text = config::example(), .json = {{"toml", config::example()}}};
    };
  });
}

}  // namespace faultline::cli
