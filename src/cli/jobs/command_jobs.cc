#include <algorithm>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/jobs/job_changes.h"
#include "cli/jobs/job_listing.h"
#include "cli/jobs/job_options.h"
#include "cli/jobs/job_text.h"
#include "cli/support/failures.h"
#include "cli/support/terminal.h"
#include "codec/encode.h"

namespace faultline::cli {
namespace {

using std::chrono::milliseconds;

// ---- show

struct ShowRequest {
  std::string id;
  bool ascii = false;
  std::size_t width = 0;
};

/// The terminal's, or 100 columns if it goes elsewhere.
std::size_t width_of(const ShowRequest& request) {
  constexpr std::size_t kWidth = 100;
  if (request.width > 0) return request.width;
  return on_terminal() ? terminal_size().columns : kWidth;
}

Expected<CommandResult> show(Context& context, const ShowRequest& request) {
  if (auto checked = check_job_ids({request.id}); !checked) return std::unexpected(checked.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto id = find_job_id(*store, request.id);
  if (!id) return std::unexpected(id.error());
  const auto history = store->history(*id);
  if (!history) return std::unexpected(to_failure(history.error()));
  if (!*history) return std::unexpected(unknown_job(*id));
  const auto now = store->now();
  if (!now) return std::unexpected(to_failure(now.error()));
  JsonWriter json;
  codec::write(json, **history);
  return CommandResult{
      .text = job_text(**history, {.now = *now, .width = width_of(request), .ascii = request.ascii}),
      .json_text = json.take()};
}

void add_show(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("show", "Show a job and draw its life as a timeline");
  verb->fallthrough();
  const auto request = std::make_shared<ShowRequest>();
  verb->add_option("ID", request->id, "The job's id, or its first characters")->required();
  verb->add_flag("--ascii", request->ascii, "Draw with ASCII characters only");
  verb->add_option("--width", request->width, "Columns to draw in (default: the terminal's, else 100)")
      ->type_name("N");
  verb->footer(
      "Each row is an attempt, an operator's act, or a write that was refused. An attempt is a bar over the "
      "time since the job was created; its end says how it went. A lease that ran out ends in a cross. A "
      "stale "
      "write bounces off a wall: behind it stand the verb, the writer's token, the job's, and the reason.");
  verb->callback(
      [&chosen, request] { chosen = [request](Context& context) { return show(context, *request); }; });
}

// ---- cancel and requeue

struct ChangeRequest {
  std::vector<std::string> ids;
  FilterOptions filter;
  std::string reason;
  std::string as;
  bool dry_run = false;
  bool yes = false;
};

void add_change_options(CLI::App& verb, ChangeRequest& request) {
  verb.fallthrough();
  verb.add_option("ID", request.ids, "Ids of jobs, or their first characters");
  add_queue_and_kind(verb, request.filter);
  add_state(verb, request.filter);
  add_operator(verb, request.as);
  verb.add_flag("--dry-run", request.dry_run, "With a filter: only show the jobs that match");
  verb.add_flag("--yes", request.yes, "Do it to more than one job");
}

template <class Status>
Expected<CommandResult> run(Context& context, const ChangeRequest& request, ChangeOrder<Status> order) {
  if (request.ids.empty() != request.filter.any())
    return std::unexpected(wrong_usage(
        request.filter.any() ? "there are both ids and a filter" : "there are no ids and no filter",
        "give ids, or at least one of --queue, --kind and --state"));
  if (auto checked = check_job_ids(request.ids); !checked) return std::unexpected(checked.error());
  if (request.filter.any()) {
    auto filter = to_request(request.filter);
    if (!filter) return std::unexpected(filter.error());
    order.filter = std::move(*filter);
  }
  order.dry_run = request.dry_run;
  order.yes = request.yes;
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  auto ids = find_job_ids(*store, request.ids);
  if (!ids) return std::unexpected(ids.error());
  order.ids = std::move(*ids);
  return change(*store, order);
}

void add_cancel(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("cancel", "Cancel jobs, by id or by filter");
  const auto request = std::make_shared<ChangeRequest>();
  add_change_options(*verb, *request);
  verb->add_option("--reason", request->reason, "Why, for the record and the worker")->type_name("TEXT");
  verb->footer(
      "Without --state a filter means all jobs that have not ended. A running job can no longer succeed, and "
      "its worker is told at its next heartbeat. Exits with 1 if a job that was named was not cancelled.");
  verb->callback([&chosen, request] {
    chosen = [request](Context& context) {
      const std::string who = operator_name(request->as);
      return run<CancelStatus>(context, *request,
                               {.verb = "cancel",
                                .done = "cancelled or told to stop",
                                .states = {JobState::scheduled, JobState::available, JobState::running,
                                           JobState::held, JobState::dead},
                                .act = [who, reason = request->reason, call = Uuid::random()](
                                           Store& store, std::span<const JobId> ids) {
                                  return store.cancel(ids, who, reason, call);
                                }});
    };
  });
}

void add_requeue(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("requeue", "Run jobs again, by id or by filter");
  const auto request = std::make_shared<ChangeRequest>();
  add_change_options(*verb, *request);
  verb->footer(
      "Without --state a filter means the dead and the held jobs. Jobs that wait or run are left alone. "
      "Exits "
      "with 1 if a job that was named was not requeued.");
  verb->callback([&chosen, request] {
    chosen = [request](Context& context) {
      const std::string who = operator_name(request->as);
      return run<RequeueStatus>(
          context, *request,
          {.verb = "requeue",
           .done = "requeued",
           .states = {JobState::dead, JobState::held},
           .act = [who, call = Uuid::random()](Store& store, std::span<const JobId> ids) {
             return store.requeue(ids, who, call);
           }});
    };
  });
}

// ---- decide

struct DecideRequest {
  std::string id;
  std::string key;
  std::string result;
  std::string reason;
  std::string as;
  std::int64_t token = 0;
  bool happened = false;
  bool did_not_happen = false;
};

/// What stands in the way, and what to do about it.
Failure undecided(DecideStatus status, const std::string& key) {
  const std::string effect = "the effect \"" + key + "\"";
  switch (status) {
    case DecideStatus::otherwise:
      return {.code = "decided_otherwise",
              .message = effect + " was decided before, and differently: that stands",
              .hint = "`faultline jobs show` says who decided it and why"};
    case DecideStatus::recorded:
      return {.code = "recorded",
              .message = effect + " is recorded by its attempt: there is nothing to decide",
              .hint = "`faultline jobs show` has what it gave"};
    case DecideStatus::changed:
      return {.code = "changed",
              .message = effect + " was begun anew since, under another token",
              .hint = "look again with `faultline jobs show`"};
    case DecideStatus::running:
      return {.code = "running",
              .message = "an attempt of the job is under way, and may be doing " + effect + " right now",
              .hint = "wait for its end, or cancel the job first"};
    case DecideStatus::decided:
    case DecideStatus::not_found:
      break;
  }
  return {.code = "unknown_effect",
          .message = effect + " was not begun, or its attempt has taken it back",
          .hint = "`faultline jobs show` lists the effects of a job"};
}

Expected<CommandResult> decide(Context& context, const DecideRequest& request) {
  if (request.happened == request.did_not_happen)
    return std::unexpected(wrong_usage("it is not said whether the effect happened",
                                       "give --happened or --did-not-happen, as you have found out"));
  if (auto checked = check_job_ids({request.id}); !checked) return std::unexpected(checked.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto id = find_job_id(*store, request.id);
  if (!id) return std::unexpected(id.error());
  EffectFinding finding{.job = *id,
                        .key = request.key,
                        .happened = request.happened,
                        .result = request.result,
                        .reason = request.reason};
  if (request.token > 0) finding.begun_under = FenceToken{request.token};
  const auto status = store->decide_effect(finding, operator_name(request.as));
  if (!status) return std::unexpected(to_failure(status.error()));
  if (*status != DecideStatus::decided) return std::unexpected(undecided(*status, request.key));
  const std::string next = request.happened ? "the next attempt gets its result and goes on from there"
                                            : "the next attempt runs it as if for the first time";
  return CommandResult{
      .text = "It is on record; " + next + ". If the job is dead: faultline jobs requeue " + id->to_string() +
              "\n",
      .json = {{"job_id", id->to_string()}, {"key", request.key}, {"status", to_string(*status)}}};
}

void add_decide(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand(
      "decide", "Say of an effect that was begun and never recorded whether it happened");
  verb->fallthrough();
  const auto request = std::make_shared<DecideRequest>();
  verb->add_option("ID", request->id, "The job's id, or its first characters")->required();
  verb->add_option("KEY", request->key, "The effect's name, as `jobs show` has it")->required();
  auto* happened = verb->add_flag("--happened", request->happened, "It happened");
  auto* did_not =
      verb->add_flag("--did-not-happen", request->did_not_happen, "It did not happen")->excludes(happened);
  verb->add_option("--result", request->result,
                   "What it gave, as its handler would have recorded it: the next attempt gets it")
      ->type_name("TEXT")
      ->needs(happened)
      ->excludes(did_not);
  verb->add_option("--reason", request->reason, "How that is known, for the record")
      ->type_name("TEXT")
      ->required();
  verb->add_option("--token", request->token,
                   "Under which it was begun: if it was begun anew since, nothing is decided")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  add_operator(*verb, request->as);
  verb->footer(
      "A worker that dies between an effect and its record leaves it unknown, and the job is buried: only a "
      "person can look on the other side. What is said here stays on record with who said it, and the job "
      "can be requeued.");
  verb->callback(
      [&chosen, request] { chosen = [request](Context& context) { return decide(context, *request); }; });
}

// ---- wait

struct WaitRequest {
  std::vector<std::string> ids;
  std::string timeout;
};

bool has_ended(JobState state) {
  return state == JobState::succeeded || state == JobState::cancelled || state == JobState::dead;
}

/// Until all have ended, or the time is over: then those that have not.
Expected<std::vector<JobId>> await_all(Store& store, std::vector<JobId> open, Deadline deadline) {
  constexpr milliseconds kFirstPause{20};
  constexpr milliseconds kLongestPause{500};
  for (milliseconds pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const bool last = Deadline::clock::now() >= deadline;
    const auto states = store.states(open);
    // While the database is away there is nothing to do but to look again.
    if (!states && (last || !may_pass(states.error().code)))
      return std::unexpected(to_failure(states.error()));
    if (states) {
      std::vector<JobId> still_open;
      for (std::size_t i = 0; i < open.size(); ++i) {
        if (!(*states)[i]) return std::unexpected(unknown_job(open[i]));
        if (!has_ended(*(*states)[i])) still_open.push_back(open[i]);
      }
      open = std::move(still_open);
    }
    if (open.empty() || last) return open;
    std::this_thread::sleep_until(std::min(deadline, Deadline::clock::now() + pause));
  }
}

Expected<CommandResult> ended_result(Store& store, const std::vector<JobId>& ids) {
  constexpr std::size_t kResultMax = 400;
  bool all_succeeded = true;
  std::vector<std::vector<std::string>> rows;
  std::vector<JobHistory> histories;
  for (const JobId& id : ids) {
    auto history = store.history(id);
    if (!history) return std::unexpected(to_failure(history.error()));
    if (!*history) return std::unexpected(unknown_job(id));
    const Job& job = (*history)->job;
    const bool succeeded = job.state == JobState::succeeded;
    all_succeeded = all_succeeded && succeeded;
    const std::string said = succeeded ? job.result.value_or("") : job.last_error.value_or("");
    rows.push_back({id.to_string(), std::string{to_string(job.state)}, bytes_text(said, kResultMax)});
    histories.push_back(std::move(**history));
  }
  return CommandResult{.text = table_text(rows),
                       .json_text = codec::list_body("jobs", histories),
                       .exit_code = all_succeeded ? ExitCode::ok : ExitCode::failure};
}

Expected<CommandResult> wait(Context& context, const WaitRequest& request) {
  if (auto checked = check_job_ids(request.ids); !checked) return std::unexpected(checked.error());
  const auto timeout = parse_duration_option("--timeout", request.timeout);
  if (!timeout) return std::unexpected(timeout.error());
  auto store = context.open_store();
  if (!store) return std::unexpected(store.error());
  const auto ids = find_job_ids(*store, request.ids);
  if (!ids) return std::unexpected(ids.error());
  const Deadline deadline = *timeout ? Deadline::clock::now() + **timeout : Deadline::max();
  const auto open = await_all(*store, *ids, deadline);
  if (!open) return std::unexpected(open.error());
  if (open->empty()) return ended_result(*store, *ids);
  return std::unexpected(Failure{.code = "timeout",
                                 .message = std::to_string(open->size()) + " of " +
                                            std::to_string(ids->size()) + " jobs had not ended after " +
                                            request.timeout + ", among them " + open->front().to_string(),
                                 .hint = "they go on; wait again, or look with `faultline jobs show`"});
}

void add_wait(CLI::App& command, Action& chosen) {
  auto* verb = command.add_subcommand("wait", "Wait until jobs have ended, and print their results");
  verb->fallthrough();
  const auto request = std::make_shared<WaitRequest>();
  verb->add_option("ID", request->ids, "Ids of jobs, or their first characters")->required();
  verb->add_option("--timeout", request->timeout, "How long to wait, such as 5m (default: without end)")
      ->type_name("DURATION");
  verb->footer(
      "Exits with 0 if all jobs succeeded, and with 1 if one was cancelled or is dead, or if the time was "
      "over "
      "first (then the error's code is \"timeout\"). A held job is waited for: a person decides.");
  verb->callback(
      [&chosen, request] { chosen = [request](Context& context) { return wait(context, *request); }; });
}

}  // namespace

void add_jobs_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("jobs", "List, show, cancel, requeue, decide about and await jobs");
  command->fallthrough();
  command->require_subcommand(1);
  add_listing(*command, chosen, std::nullopt);
  add_show(*command, chosen);
  add_cancel(*command, chosen);
  add_requeue(*command, chosen);
  add_decide(*command, chosen);
  add_wait(*command, chosen);
}

}  // namespace faultline::cli
