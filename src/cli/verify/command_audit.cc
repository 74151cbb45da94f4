#include <algorithm>
#include <chrono>
#include <memory>

#include "audit/audit.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/jobs/job_options.h"
#include "cli/support/current_database.h"
#include "cli/support/failures.h"
#include "cli/support/terminal.h"

namespace faultline::cli {
namespace {

constexpr std::chrono::minutes kTimeMax{10};

struct AuditRequest {
  std::size_t examples = 10;
  std::string timeout = "10m";
  std::vector<std::string> only;
};

std::string text_of(const audit::Report& report) {
  const bool colours = colours_wanted();
  std::size_t width = 0;
  for (const audit::Check& check : report.checks) width = std::max(width, check.name.size());
  std::string text;
  for (const audit::Check& check : report.checks) {
    const bool holds = check.violations == 0;
    text += coloured(holds ? "ok      " : "VIOLATED", holds ? Colour::green : Colour::red, colours);
    text += "  " + check.name + std::string(width - check.name.size(), ' ') + "  " + check.promise + "\n";
    for (const audit::Violation& violation : check.examples)
      text += "            " + printable(violation.row) + ": " + printable(violation.detail) + "\n";
    const auto more = check.violations - static_cast<std::int64_t>(check.examples.size());
    if (more > 0) text += "            and " + std::to_string(more) + " more\n";
  }
  if (report.violations() == 0) return text + "All of it held at " + faultline::to_string(report.at) + ".\n";
  return text + std::to_string(report.violations()) + " rows break a promise at " +
         faultline::to_string(report.at) +
         ". Keep the database as it is, take a backup, and look at these jobs with: faultline jobs show ID\n";
}

nlohmann::json json_of(const audit::Report& report) {
  nlohmann::json checks = nlohmann::json::array();
  for (const audit::Check& check : report.checks) {
    nlohmann::json examples = nlohmann::json::array();
    for (const audit::Violation& violation : check.examples)
      examples.push_back({{"row", violation.row}, {"detail", violation.detail}});
    checks.push_back({{"name", check.name},
                      {"promise", check.promise},
                      {"violations", check.violations},
                      {"examples", std::move(examples)}});
  }
  return {{"at", faultline::to_string(report.at)},
          {"violations", report.violations()},
          {"checks", std::move(checks)}};
}

Expected<CommandResult> audit_database(Context& context, const AuditRequest& request) {
  const auto at_most = parse_duration_option("--timeout", request.timeout);
  if (!at_most) return std::unexpected(at_most.error());
  auto connection = connect_to_current(context);
  if (!connection) return std::unexpected(connection.error());
  const auto report =
      audit::check(*connection, request.examples,
                   std::chrono::steady_clock::now() + at_most->value_or(kTimeMax), request.only);
  if (!report) return std::unexpected(to_failure(report.error()));
  return CommandResult{.text = text_of(*report),
                       .json = json_of(*report),
                       .exit_code = report->violations() == 0 ? ExitCode::ok : ExitCode::failure};
}

}  // namespace

void add_audit_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand(
      "audit", "Check on the live database, read-only, that what is promised of every job holds");
  command->fallthrough();
  const auto request = std::make_shared<AuditRequest>();
  command->add_option("--examples", request->examples, "Name at most this many rows for each broken promise")
      ->capture_default_str()
      ->check(CLI::Range(0, 100'000))
      ->type_name("N");
  command->add_option("--timeout", request->timeout, "Give up after this long")
      ->capture_default_str()
      ->type_name("DURATION");
  command->add_option("CHECK", request->only, "Only these checks; all of them if none is named");
  command->callback([&chosen, request] {
    chosen = [request](Context& context) { return audit_database(context, *request); };
  });
}

}  // namespace faultline::cli
