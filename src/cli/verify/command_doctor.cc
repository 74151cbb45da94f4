#include <algorithm>
#include <chrono>

#include "audit/doctor.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/support/current_database.h"
#include "cli/support/failures.h"
#include "cli/support/terminal.h"

namespace faultline::cli {
namespace {

using audit::Finding;
using audit::Level;

constexpr std::chrono::seconds kAnswerMax{60};

Colour colour_of(Level level) {
  return level == Level::ok ? Colour::green : level == Level::warning ? Colour::yellow : Colour::red;
}

Level worst_of(const std::vector<Finding>& findings) {
  Level worst = Level::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.level);
  return worst;
}

std::string text_of(const std::vector<Finding>& findings) {
  const bool colours = colours_wanted();
  constexpr std::size_t kLevelWidth = 9;
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.name.size() + 2);
  std::string text;
  for (const Finding& finding : findings) {
    const std::string_view level = audit::to_string(finding.level);
    text += coloured(level, colour_of(finding.level), colours) + std::string(kLevelWidth - level.size(), ' ');
    text += finding.name + std::string(width - finding.name.size(), ' ') + printable(finding.seen) + "\n";
    if (!finding.todo.empty())
      text += std::string(kLevelWidth + width, ' ') + "do: " + printable(finding.todo) + "\n";
  }
  return text;
}

nlohmann::json json_of(const std::vector<Finding>& findings) {
  nlohmann::json all = nlohmann::json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"name", finding.name},
                   {"level", audit::to_string(finding.level)},
                   {"seen", finding.seen},
                   {"do", finding.todo.empty() ? nlohmann::json() : nlohmann::json(finding.todo)}});
  }
  return {{"level", audit::to_string(worst_of(findings))}, {"findings", std::move(all)}};
}

Expected<CommandResult> examine(Context& context) {
  auto connection = connect_to_current(context);
  if (!connection) return std::unexpected(connection.error());
  auto findings = audit::examine(*connection, std::chrono::steady_clock::now() + kAnswerMax);
  if (!findings) return std::unexpected(to_failure(findings.error()));
  if (context.private_postgres_replaced())
    findings->push_back({.name = "server_files",
                         .level = Level::warning,
                         .seen = "an upgrade has replaced the files from which the private PostgreSQL runs",
                         .todo = "start it anew: faultline pg stop, and then the commands that use it; "
                                 "faultline up does so by itself"});
  return CommandResult{.text = text_of(*findings),
                       .json = json_of(*findings),
                       .exit_code = worst_of(*findings) == Level::danger ? ExitCode::failure : ExitCode::ok};
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "doctor", "Look for what endangers jobs: settings, clock, rights, bloat, standbys; and say what to do");
  command->fallthrough();
  command->callback([&chosen] { chosen = [](Context& context) { return examine(context); }; });
}

}  // namespace faultline::cli
