#include <memory>

#include "cli/commands.h"
#include "cli/jobs/job_options.h"
#include "cli/jobs/timeline.h"
#include "cli/support/failures.h"
#include "cli/support/field_flags.h"
#include "cli/support/table_text.h"
#include "config/values.h"
#include "service/encode.h"
#include "service/operations.h"

namespace faultline::cli {
namespace {

using service::QueueOverview;

std::vector<std::string> row_of(const QueueOverview& overview) {
  const Queue& queue = overview.queue;
  const QueueCounts& counts = overview.counts;
  return {
      queue.name,
      queue.deleted_at ? "deleted"
      : queue.paused   ? "paused"
                       : "open",
      std::to_string(counts.available),
      std::to_string(counts.scheduled),
      std::to_string(counts.retrying),
      std::to_string(counts.running) + (queue.running_max ? "/" + std::to_string(*queue.running_max) : ""),
      std::to_string(counts.held),
      std::to_string(counts.dead),
      std::to_string(counts.succeeded),
      std::to_string(counts.cancelled),
      std::to_string(counts.failures),
      counts.oldest_due_age ? human_duration(*counts.oldest_due_age) : "-",
      config::write_duration(queue.lease_ttl),
      std::to_string(queue.attempts_max),
      config::write_duration(queue.backoff_base) + " to " + config::write_duration(queue.backoff_max),
      config::write_duration(queue.retention)};
}

std::string table_of(const std::vector<QueueOverview>& queues) {
  std::vector<std::vector<std::string>> rows{{"QUEUE", "STATE", "AVAILABLE", "SCHEDULED", "RETRYING",
                                              "RUNNING", "HELD", "DEAD", "SUCCEEDED", "CANCELLED", "FAILURES",
                                              "OLDEST", "TTL", "ATTEMPTS", "BACKOFF", "RETENTION"}};
  for (const QueueOverview& queue : queues) rows.push_back(row_of(queue));
  return table_text(rows);
}

Expected<CommandResult> list(Context& context) {
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  auto queues = store->queues();
  if (!queues) return std::unexpected(to_failure(queues.error()));
  auto counts = store->counts();
  if (!counts) return std::unexpected(to_failure(counts.error()));
  const auto overviews = service::overviews_of(std::move(*queues), std::move(*counts));
  return CommandResult{.text = table_of(overviews), .json_text = codec::list_body("queues", overviews)};
}

/// The queue as it is now, which is what HTTP answers a change with.
Expected<CommandResult> queue_result(Store& store, const std::string& name) {
  const auto overview = service::find_queue(store, name);
  if (!overview) return std::unexpected(to_failure(overview.error()));
  JsonWriter json;
  service::write(json, *overview);
  return CommandResult{.text = table_of({*overview}), .json_text = json.take()};
}

Failure unknown_queue(const Error& error) {
  Failure failure = to_failure(error);
  if (error.code == ErrorCode::unknown_queue)
    failure.hint = "see `faultline queues list`; `faultline queues set NAME --create` makes a queue";
  return failure;
}

void add_pausing(CLI::App& command, Action& chosen, bool pause) {
  auto* verb = command.add_subcommand(pause ? "pause" : "resume",
                                      pause ? "Let no more jobs of a queue be claimed; what runs goes on"
                                            : "Let jobs of a paused queue be claimed again");
  verb->fallthrough();
  const auto name = std::make_shared<std::string>();
  verb->add_option("NAME", *name, "The queue's name")->required();
  verb->callback([&chosen, name, pause] {
    chosen = [name, pause](Context& context) -> Expected<CommandResult> {
      auto store = context.open_store();
      if (!store) return std::unexpected(store.error());
      const auto done = pause ? store->pause(*name) : store->resume(*name);
      if (!done) return std::unexpected(unknown_queue(done.error()));
      return queue_result(*store, *name);
    };
  });
}

/// What the command line says, before it is read.
struct SetRequest {
  std::string name;
  bool create = false;
  FieldFlags<QueueSettings> settings;
};

Expected<CommandResult> set(Context& context, const SetRequest& request) {
  QueueSettings settings;
  if (auto read = request.settings.read(settings); !read) return std::unexpected(read.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto done =
      request.create ? store->set_queue(request.name, settings) : store->change_queue(request.name, settings);
  if (!done) return std::unexpected(unknown_queue(done.error()));
  return queue_result(*store, request.name);
}

void add_set(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("set", "Change what is set about a queue, or make one");
  verb->fallthrough();
  const auto request = std::make_shared<SetRequest>();
  verb->add_option("NAME", request->name, "The queue's name")->required();
  verb->add_flag("--create", request->create, "Make it if there is none");
  request->settings.add_to(*verb);
  verb->callback(
      [&chosen, request] { chosen = [request](Context& context) { return set(context, *request); }; });
}

Expected<CommandResult> delete_queue(Context& context, const std::string& name) {
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto deletion = store->delete_queue(name);
  if (!deletion) return std::unexpected(to_failure(deletion.error()));
  switch (deletion->status) {
    case QueueDeletion::Status::deleted:
      break;
    case QueueDeletion::Status::has_jobs:
      return std::unexpected(
          Failure{.code = "has_jobs",
                  .message = "the queue \"" + name + "\" has " + std::to_string(deletion->live) +
                             (deletion->live == 1 ? " live job" : " live jobs") + ", and was not deleted",
                  .hint = "let them finish, or see `faultline jobs cancel --help` and `faultline dead purge "
                          "--help`"});
    case QueueDeletion::Status::not_found:
      return std::unexpected(Failure{.code = "unknown_queue",
                                     .message = "there is no queue \"" + name + "\"",
                                     .hint = "see them with: faultline queues list"});
  }
  return CommandResult{.text = "The queue \"" + name + "\" is deleted.\n",
                       .json = {{"name", name}, {"status", to_string(deletion->status)}}};
}

void add_delete(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("delete", "Delete a queue that has no live jobs");
  verb->fallthrough();
  const auto name = std::make_shared<std::string>();
  verb->add_option("NAME", *name, "The queue's name")->required();
  verb->footer(
      "Nothing is added to it from then on. Its finished jobs are kept for as long as they would have been. "
      "`queues set NAME --create` makes a queue of this name anew.");
  verb->callback(
      [&chosen, name] { chosen = [name](Context& context) { return delete_queue(context, *name); }; });
}

}  // namespace

void add_queues_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("queues", "List, pause, resume, make, change and delete queues");
  command->fallthrough();
  command->require_subcommand(1);
  auto* list_command = command->add_subcommand("list", "List all queues with their jobs and settings");
  list_command->fallthrough();
  list_command->callback([&chosen] { chosen = list; });
  add_pausing(*command, chosen, true);
  add_pausing(*command, chosen, false);
  add_set(*command, chosen);
  add_delete(*command, chosen);
}

}  // namespace faultline::cli
