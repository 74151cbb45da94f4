#include <algorithm>
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
  // What the database does not filter by.
  std::string error;
  std::string tag;
  std::string since;
  std::string until;
  std::size_t limit = 0;
  std::string as;
  bool all = false;
  bool dry_run = false;
  bool yes = false;
};

bool has_filter(const Request& request) {
  return request.filter.any() || !request.error.empty() || !request.tag.empty() || !request.since.empty() ||
         !request.until.empty();
}

Expected<void> check(const Request& request) {
  const int ways = static_cast<int>(!request.ids.empty()) + static_cast<int>(has_filter(request)) +
                   static_cast<int>(request.all);
  if (ways == 1 && (request.ids.empty() || request.limit == 0)) return check_job_ids(request.ids);
  return std::unexpected(wrong_usage(
      ways == 0   ? "it is not said which dead jobs"
      : ways == 1 ? "--limit goes with a filter"
                  : "the jobs are named in more than one way",
      "give ids, or at least one of --queue, --kind, --error, --tag, --since and --until, or --all"));
}

/// What the filter asks for besides queue and kind.
Expected<std::function<bool(const JobSummary&)>> matcher(const Request& request, DatabaseTime now) {
  const auto since = parse_moment_option("--since", request.since, now);
  if (!since) return std::unexpected(since.error());
  const auto until = parse_moment_option("--until", request.until, now);
  if (!until) return std::unexpected(until.error());
  return [error = request.error, tag = request.tag, since = *since, until = *until](const JobSummary& job) {
    const DatabaseTime died = job.died_at.value_or(job.created_at);
    return (error.empty() || job.last_error.value_or("").find(error) != std::string::npos) &&
           (tag.empty() || std::ranges::find(job.tags, tag) != job.tags.end()) &&
           (!since || died >= *since) && (!until || died < *until);
  };
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
  order.dry_run = request.dry_run;
  order.yes = request.yes;
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  auto ids = find_job_ids(*store, request.ids);
  if (!ids) return std::unexpected(ids.error());
  order.ids = std::move(*ids);
  if (order.ids.empty()) {
    auto filter = to_request(request.filter);
    if (!filter) return std::unexpected(filter.error());
    order.filter = std::move(*filter);
    order.filter->state = JobState::dead;
    order.limit = request.limit;
    const auto now = store->now();
    if (!now) return std::unexpected(to_failure(now.error()));
    auto matches = matcher(request, *now);
    if (!matches) return std::unexpected(matches.error());
    order.matches = std::move(*matches);
  }
  if (auto dead = check_dead(*store, order.ids); !dead) return std::unexpected(dead.error());
  return change(*store, order);
}

std::shared_ptr<Request> add_options(CLI::App& verb) {
  auto request = std::make_shared<Request>();
  verb.fallthrough();
  verb.add_option("ID", request->ids, "Ids of dead jobs, or their first characters");
  add_queue_and_kind(verb, request->filter);
  verb.add_option("--error", request->error, "Only jobs whose last error has this text in it")
      ->type_name("TEXT");
  verb.add_option("--tag", request->tag, "Only jobs with this tag")->type_name("TAG");
  verb.add_option("--since", request->since, "Only jobs that died after this: 2h ago, or a moment")
      ->type_name("TIME");
  verb.add_option("--until", request->until, "Only jobs that died before this: 2h ago, or a moment")
      ->type_name("TIME");
  verb.add_option("--limit", request->limit, "With a filter: the newest of them, so many at most")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--all", request->all, "All dead jobs of all queues");
  add_operator(verb, request->as);
  verb.add_flag("--dry-run", request->dry_run, "Only show the dead jobs that match");
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
