#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "cli/support/context.h"

namespace faultline::cli {

using Action = std::function<Expected<CommandResult>(Context&)>;

/// Each adds one subcommand, and sets `chosen` when it is the one on the command line.
void add_audit_command(CLI::App& app, Action& chosen);
void add_bench_command(CLI::App& app, Action& chosen);
void add_completion_command(CLI::App& app, Action& chosen);
void add_config_command(CLI::App& app, Action& chosen);
void add_dead_command(CLI::App& app, Action& chosen);
void add_doctor_command(CLI::App& app, Action& chosen);
void add_drill_command(CLI::App& app, Action& chosen);
void add_enqueue_command(CLI::App& app, Action& chosen);
void add_jobs_command(CLI::App& app, Action& chosen);
void add_keys_command(CLI::App& app, Action& chosen);
void add_man_command(CLI::App& app, Action& chosen);
void add_migrate_command(CLI::App& app, Action& chosen);
void add_pg_command(CLI::App& app, Action& chosen);
void add_queues_command(CLI::App& app, Action& chosen);
void add_reference_command(CLI::App& app, Action& chosen);
void add_serve_command(CLI::App& app, Action& chosen);
void add_stale_command(CLI::App& app, Action& chosen);
void add_top_command(CLI::App& app, Action& chosen);
void add_up_command(CLI::App& app, Action& chosen);
void add_version_command(CLI::App& app, Action& chosen);
void add_work_command(CLI::App& app, Action& chosen);

/// Brings the schema up to date; what `faultline migrate` says.
struct MigrateRequest {
  bool dry_run = false;
  int buckets = 1;
};
[[nodiscard]] Expected<CommandResult> migrate(pg::Connection& connection, const MigrateRequest& request);

}  // namespace faultline::cli
