#include "cli/commands.h"

namespace faultline::cli {
namespace {

using StopOutcome = PrivatePostgres::StopOutcome;

nlohmann::json to_json(const PrivatePostgres::Status& status) {
  nlohmann::json json{{"running", status.running},
                      {"keep_running", status.keep_running},
                      {"data_dir", status.data_dir.string()},
                      {"pid", nullptr},
                      {"url", nullptr}};
  if (status.running) {
    json["pid"] = status.postmaster_pid;
    json["url"] = status.dsn;
  }
  return json;
}

Expected<PrivatePostgres::Status> inspect(Context& context) {
  auto status = PrivatePostgres::inspect(context.private_postgres_options());
  if (!status) return std::unexpected(to_failure(status.error()));
  return std::move(*status);
}

Expected<CommandResult> start(Context& context) {
  const auto url = context.start_private_postgres(true);
  if (!url) return std::unexpected(url.error());
  auto connection = context.connect_to(*url);
  if (!connection) return std::unexpected(connection.error());
  if (auto migrated = migrate(*connection, {}); !migrated) return std::unexpected(migrated.error());
  const auto status = inspect(context);
  if (!status) return std::unexpected(status.error());
  return CommandResult{.text = "The private PostgreSQL runs until: faultline pg stop\n" + *url + "\n",
                       .json = to_json(*status)};
}

Expected<CommandResult> stop(Context& context) {
  const auto outcome = PrivatePostgres::stop_server(context.private_postgres_options());
  if (!outcome) return std::unexpected(to_failure(outcome.error()));
  switch (*outcome) {
    case StopOutcome::stopped:
      return CommandResult{.text = "The private PostgreSQL has stopped.\n", .json = {{"outcome", "stopped"}}};
    case StopOutcome::still_used:
      return CommandResult{
          .text = "Other Faultline processes still use it; it stops when the last of them ends.\n",
          .json = {{"outcome", "still_used"}}};
    case StopOutcome::kept_running:
    case StopOutcome::not_running:
      break;
  }
  return CommandResult{.text = "The private PostgreSQL is not running.\n",
                       .json = {{"outcome", "not_running"}}};
}

Expected<CommandResult> status(Context& context) {
  const auto found = inspect(context);
  if (!found) return std::unexpected(found.error());
  std::string text = "data directory  " + found->data_dir.string() + "\n";
  text += found->running
              ? "running         process " + std::to_string(found->postmaster_pid) +
                    (found->keep_running ? ", until: faultline pg stop\n" : ", until its last user ends\n") +
                    "url             " + found->dsn + "\n"
              : "not running\n";
  return CommandResult{.text = std::move(text), .json = to_json(*found)};
}

Expected<CommandResult> url(Context& context) {
  const auto found = inspect(context);
  if (!found) return std::unexpected(found.error());
  if (!found->running)
    return std::unexpected(
        Failure{.code = "not_running",
                .message = "the private PostgreSQL in " + found->data_dir.string() + " is not running",
                .hint = "start it with: faultline pg start"});
  return CommandResult{.text = found->dsn + "\n", .json = {{"url", found->dsn}}};
}

Action on_private_server(Expected<CommandResult> (*verb)(Context&)) {
  return [verb](Context& context) -> Expected<CommandResult> {
    if (!context.options().database.empty())
      return std::unexpected(
          Failure{.code = "wrong_usage",
                  .message = "faultline pg is about the private PostgreSQL, and --database names another",
                  .hint = "leave out --database; --data-dir chooses the private one",
                  .exit_code = ExitCode::wrong_usage});
    return verb(context);
  };
}

}  // namespace

void add_pg_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("pg", "Operate the private PostgreSQL");
  command->fallthrough()->require_subcommand(1);
  const auto add = [&](const char* name, const char* description, Expected<CommandResult> (*verb)(Context&)) {
    command->add_subcommand(name, description)->fallthrough()->callback([&chosen, verb] {
      chosen = on_private_server(verb);
    });
  };
  add("start", "Start it, migrate it, and keep it running after this command", start);
  add("stop", "Stop it, once nobody uses it any more", stop);
  add("status", "Say whether it runs, and where", status);
  add("url", "Print the database URL of the running server", url);
}

}  // namespace faultline::cli
