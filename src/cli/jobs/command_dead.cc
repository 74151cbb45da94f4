#include <memory>

#include "cli/commands.h"
#include "cli/jobs/job_changes.h"
#include "cli/jobs/job_listing.h"
#include "cli/jobs/job_options.h"
#include "cli/support/failures.h"

namespace faultline::cli {
namespace {

struct Request {
  std::vector<std::string> ids;
  FilterOptions filter;
  std::string as;
  bool all = false;
  bool dry_run = false;
  bool yes = false;
};

Expected<void> check(const Request& request) {
  const int ways = static_cast<int>(!request.ids.empty()) + static_cast<int>(request.filter.any()) +
                   static_cast<int>(request.all);
  if (ways == 1) return {};
  return std::unexpected(
      wrong_usage(ways == 0 ? "it is not said which dead jobs" : "the jobs are named in more than one way",
                  "give ids, or at least one of --queue and --kind, or --all"));
}

/// The first job that is named and is not dead. One that dies or comes back at this moment may be either.
Expected<void> check_dead(Store& store, const std::vector<JobId>& ids) {
  const auto states = store.states(ids);
  if (!states) return std::unexpected(to_failure(states.error()));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto& state = (*states)[i];
    if (!state) return std::unexpected(unknown_job(ids[i]));
    if (*state != JobState::dead)
      return std::unexpected(Failure{
          .code = "not_dead",
          .message = "job " + ids[i].to_string() + " is " + std::string{to_string(*state)} + " and not dead",
          .hint = "nothing was changed; see: faultline jobs --help"});
  }
  return {};
}

template <class Status>
Expected<CommandResult> run(Context& context, const Request& request, ChangeOrder<Status> order) {
  if (auto checked = check(request); !checked) return std::unexpected(checked.error());
  auto ids = parse_job_ids(request.ids);
  if (!ids) return std::unexpected(ids.error());
  order.ids = std::move(*ids);
  order.dry_run = request.dry_run;
  order.yes = request.yes;
  if (order.ids.empty()) {
    auto filter = to_request(request.filter);
    if (!filter) return std::unexpected(filter.error());
    order.filter = std::move(*filter);
    order.filter->state = JobState::dead;
  }
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  if (auto dead = check_dead(*store, order.ids); !dead) return std::unexpected(dead.error());
  return change(*store, order);
}

std::shared_ptr<Request> add_options(CLI::App& verb) {
  auto request = std::make_shared<Request>();
  verb.fallthrough();
  verb.add_option("ID", request->ids, "Whole ids of dead jobs");
  add_queue_and_kind(verb, request->filter);
  verb.add_flag("--all", request->all, "All dead jobs of all queues");
  add_operator(verb, request->as);
  verb.add_flag("--dry-run", request->dry_run, "Only count the dead jobs that match");
  verb.add_flag("--yes", request->yes, "Do it to more than one job");
  return request;
}

void add_requeue(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("requeue", "Run dead jobs again, with all their attempts");
  const auto request = add_options(*verb);
  verb->callback([&chosen, request] {
    chosen = [request](Context& context) {
      const std::string who = operator_name(request->as);
      return run<RequeueStatus>(
          context, *request,
          {.verb = "requeue",
           .done = "requeued",
           .act = [who, call = Uuid::random()](Store& store, std::span<const JobId> ids) {
             return store.requeue(ids, who, call);
           }});
    };
  });
}

void add_purge(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("purge", "Remove dead jobs for good");
  const auto request = add_options(*verb);
  verb->footer(
      "A purged job cannot be requeued, and its payload is gone. What became of its attempts, and who purged "
      "it, stays in the ledger for the queue's retention.");
  verb->callback([&chosen, request] {
    chosen = [request](Context& context) {
      const std::string who = operator_name(request->as);
      return run<PurgeStatus>(context, *request,
                              {.verb = "purge",
                               .done = "purged",
                               .act = [who, call = Uuid::random()](Store& store, std::span<const JobId> ids) {
                                 return store.purge_dead(ids, who, call);
                               }});
    };
  });
}

}  // namespace

void add_dead_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("dead", "List, requeue and purge the dead letters");
  command->fallthrough();
  command->require_subcommand(1);
  add_listing(*command, chosen, JobState::dead);
  add_requeue(*command, chosen);
  add_purge(*command, chosen);
}

}  // namespace faultline::cli
