#include "cli/commands.h"
#include "schema/migrator.h"

namespace faultline::cli {
namespace {

/// Long enough to build an index on a large table; a wait for a lock is bounded separately, and shortly.
constexpr std::chrono::hours kMigrateMax{1};

std::string_view to_string(schema::MigrateError::Code code) {
  using Code = schema::MigrateError::Code;
  switch (code) {
    case Code::newer_schema:
      return "newer_schema";
    case Code::older_schema:
      return "older_schema";
    case Code::foreign_schema:
      return "foreign_schema";
    case Code::usage:
      return "wrong_usage";
    case Code::permission_denied:
      return "permission_denied";
    case Code::database:
      return "database";
  }
  return "unknown";
}

Failure to_failure(const schema::MigrateError& error) {
  const bool usage = error.code == schema::MigrateError::Code::usage;
  return {.code = std::string{to_string(error.code)},
          .message = error.message,
          .hint = error.hint,
          .exit_code = usage ? ExitCode::wrong_usage : ExitCode::failure};
}

nlohmann::json to_json(const schema::MigrateReport& report, bool dry_run) {
  nlohmann::json applied = nlohmann::json::array();
  for (const auto& migration : report.applied)
    applied.push_back({{"version", migration.version}, {"name", migration.name}});
  nlohmann::json json{{"dry_run", dry_run},
                      {"version_before", report.version_before},
                      {"version_after", report.version_after},
                      {"applied", std::move(applied)}};
  if (dry_run) json["sql"] = report.sql;
  return json;
}

std::string to_text(const schema::MigrateReport& report, bool dry_run) {
  const std::string version = std::to_string(report.version_after);
  if (report.applied.empty())
    return std::string{dry_run ? "-- " : ""} + "The schema is up to date (version " + version + ").\n";
  if (dry_run) return report.sql;
  std::string text;
  for (const auto& migration : report.applied)
    text += "applied " + std::to_string(migration.version) + " " + migration.name + "\n";
  return text + "The schema is now at version " + version + ".\n";
}

}  // namespace

Expected<CommandResult> migrate(pg::Connection& connection, const MigrateRequest& request) {
  const auto report = schema::migrate(connection, {.dry_run = request.dry_run, .buckets = request.buckets},
                                      std::chrono::steady_clock::now() + kMigrateMax);
  if (!report) return std::unexpected(to_failure(report.error()));
  return CommandResult{.text = to_text(*report, request.dry_run), .json = to_json(*report, request.dry_run)};
}

void add_migrate_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("migrate", "Bring the database's schema up to date");
  command->fallthrough();
  const auto request = std::make_shared<MigrateRequest>();
  command->add_flag("--dry-run", request->dry_run, "Print the SQL and change nothing");
  command
      ->add_option("--buckets", request->buckets,
                   "Buckets of a new schema, fixed once it is made: 1 on a single server")
      ->capture_default_str();
  command->callback([&chosen, request] {
    chosen = [request](Context& context) -> Expected<CommandResult> {
      auto connection = context.connect();
      if (!connection) return std::unexpected(connection.error());
      auto result = migrate(*connection, *request);
      if (!result) return result;
      result->text = (request->dry_run ? "-- " : "") + context.database_name() + "\n" + result->text;
      result->json["database"] = context.database_name();
      return result;
    };
  });
}

}  // namespace faultline::cli
