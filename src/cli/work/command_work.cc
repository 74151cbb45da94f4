#include <sys/prctl.h>

#include <algorithm>
#include <iostream>
#include <thread>

#include "cli/commands.h"
#include "cli/support/failures.h"
#include "cli/support/log_sink.h"
#include "cli/support/postgres_keeper.h"
#include "cli/support/signal_count.h"
#include "cli/work/exec_handler.h"
#include "config/settings.h"
#include "faultline/worker.h"

namespace faultline::cli {
namespace {

using std::chrono::milliseconds;

/// For a killed program's end to be seen, after which the drain goes on.
constexpr milliseconds kReapMax{10'000};
/// Between two looks at whether the queues are empty.
constexpr milliseconds kLookEvery{200};

constexpr const char* kProtocol =
    R"(The program reads the payload from standard input. In its environment are FAULTLINE_JOB_ID,
FAULTLINE_TOKEN, FAULTLINE_ATTEMPT, FAULTLINE_LEASE_ID, FAULTLINE_QUEUE, FAULTLINE_KIND and, if there
is one, FAULTLINE_DEADLINE (the end of its maximum run time, by the database's clock) and TRACEPARENT.
What it writes to standard output is the job's result: as it is if it is JSON, else as a JSON string.
Standard error goes to the log, and its end is the error's text. It has the worker's environment, but
not what the worker has for itself: FAULTLINE_*, DATABASE_URL, and the passwords and keys of libpq
(PGPASSWORD and the like). --pass-env hands on one of these by name.

Exit codes: 0 success, 65 bury, 99 snooze; any other, and death by a signal: failed, and tried again.

When the lease is lost, the job is cancelled or its run time is over, the program's process group is
sent SIGTERM, and SIGKILL if it is still there after --kill-after. Whatever a program leaves running
is killed when it ends, also what has begun a session of its own, and all of it is when the worker
dies.

SIGTERM or SIGINT drains the worker: programs may finish until --drain-max. A second signal is passed
on to them as SIGTERM, a third as SIGKILL.)";

struct WorkRequest {
  std::vector<std::string> queues;
  std::string program;
  std::vector<std::string> pass_env;
  std::string server;
  std::string name;
  std::size_t concurrency = 1;
  ExitCodeLists exit_codes;
  milliseconds snooze{60'000};
  milliseconds kill_after{10'000};
  milliseconds drain_max{30'000};
  bool until_empty = false;
  std::string metrics_listen;
  std::string otlp_endpoint;
  std::string otlp_ca;
  LogOptions log;
};

Expected<ExecOptions> exec_options(const Context& context, const WorkRequest& request) {
  auto path = find_program(request.program);
  if (!path)
    return std::unexpected(wrong_usage("cannot run \"" + request.program + "\": " + path.error(),
                                       "give a program in PATH, or the path of an executable file"));
  auto meanings = exit_meanings(request.exit_codes);
  if (!meanings) return std::unexpected(std::move(meanings.error()));
  std::vector<std::string> argv{request.program};
  std::ranges::copy(context.options().program_arguments, std::back_inserter(argv));
  return ExecOptions{.path = std::move(*path),
                     .argv = std::move(argv),
                     .hand_on = request.pass_env,
                     .exit_meanings = std::move(*meanings),
                     .snooze = request.snooze,
                     .kill_after = request.kill_after,
                     .drain_max = request.drain_max};
}

WorkerOptions worker_options(const WorkRequest& request, std::string database) {
  WorkerOptions options{.database = std::move(database),
                        .name = request.name,
                        .queues = {},
                        .slots = request.concurrency,
                        // A program takes longer than a claim: what is claimed ahead would only wait.
                        .prefetch_max = 0,
                        .drain_max = request.drain_max + request.kill_after + kReapMax,
                        .otlp_endpoint = request.otlp_endpoint,
                        .otlp_ca = request.otlp_ca,
                        .log = log_sink(request.log),
                        .log_from = severity_of(request.log.level),
                        .metrics_listen = request.metrics_listen};
  for (const std::string& queue : request.queues) options.queues.push_back({.queue = queue});
  return options;
}

bool are_empty(Store& store, const std::vector<std::string>& queues) {
  return std::ranges::all_of(queues, [&](const std::string& queue) {
    const auto counts = store.counts(queue);
    return counts && !counts->empty() && counts->front().available == 0 && counts->front().running == 0;
  });
}

/// Returns when it is time to drain.
void wait_for_the_end(SignalCount& signals, Store* until_empty, const std::vector<std::string>& queues) {
  if (until_empty == nullptr) {
    signals.wait_for(1);
    return;
  }
  while (!are_empty(*until_empty, queues)) {
    if (signals.wait_for(1, kLookEvery)) return;
  }
}

Expected<CommandResult> run_worker(Context& context, Worker& worker, ExecHandler& handler, Store* until_empty,
                                   const WorkRequest& request) {
  SignalCount signals;
  context.on_signal([&] { signals.add(); });
  if (auto started = worker.start(); !started) {
    context.on_signal({});
    return std::unexpected(to_failure(started.error()));
  }
  PostgresKeeper keeper{context, log_sink(request.log), [&signals] { signals.add(); }};
  wait_for_the_end(signals, until_empty, request.queues);
  keeper.stop();
  std::jthread hurrier{[&] {
    for (const int count : {2, 3}) {
      if (signals.wait_for(count)) handler.hurry();
    }
  }};
  const DrainReport report = worker.drain();
  signals.over();
  hurrier.join();
  context.on_signal({});
  if (auto failure = keeper.failure()) return std::unexpected(std::move(*failure));
  const bool lost = report.unsettled > 0 || report.abandoned > 0;
  return CommandResult{.text = {},
                       .json = {{"settled", worker.stats().settled},
                                {"stale", worker.stats().stale},
                                {"released", report.released},
                                {"unsettled", report.unsettled}},
                       .exit_code = lost ? ExitCode::failure : ExitCode::ok};
}

Expected<CommandResult> work(Context& context, const WorkRequest& request) {
  auto options = exec_options(context, request);
  if (!options) return std::unexpected(std::move(options.error()));
  if (!request.server.empty() && !context.options().database.empty())
    return std::unexpected(wrong_usage("both --server and --database are given", "give one of them"));
  if (!request.server.empty() && request.until_empty)
    return std::unexpected(
        wrong_usage("--until-empty needs the database, and --server hides it", "leave out one of them"));
  std::optional<Store> store;
  std::string database;
  if (request.server.empty()) {
    auto opened = context.open_store();
    if (!opened) return std::unexpected(std::move(opened.error()));
    store.emplace(std::move(*opened));
    auto url = context.database_url();
    if (!url) return std::unexpected(std::move(url.error()));
    database = std::move(*url);
  }
  // What the programs do not get they shall not read either: in /proc, of a process of the same user. (There
  // is no core dump of it then, which would have the same in it.)
  ::prctl(PR_SET_DUMPABLE, 0);
  const OrphanKiller orphan_killer;
  ExecHandler handler{std::move(*options), orphan_killer};
  Worker worker = request.server.empty() ? Worker{worker_options(request, database)}
                                         : Worker::connect(request.server, worker_options(request, database));
  worker.handle_any([&](faultline::Context& job) { return handler(job); });
  auto answer = run_worker(context, worker, handler, request.until_empty ? &*store : nullptr, request);
  if (!answer) answer.error().message = without_passwords_of(database, std::move(answer.error().message));
  return answer;
}

void add_duration(CLI::App& command, const std::string& name, milliseconds& value, const std::string& help) {
  command
      .add_option_function<std::string>(
          name,
          [&value, name](const std::string& text) {
            const auto parsed = config::parse_duration(text);
            if (!parsed)
              throw CLI::ValidationError(name,
                                         "\"" + text + "\" is not a duration; write 500ms, 10s, 2m or 1h");
            value = *parsed;
          },
          help)
      ->type_name("DURATION");
}

void add_codes(CLI::App& command, const std::string& name, std::optional<std::vector<int>>& codes,
               const std::string& help) {
  command
      .add_option_function<std::vector<int>>(
          name, [&codes](const std::vector<int>& given) { codes = given; }, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODES");
}

void add_options(CLI::App& command, WorkRequest& request) {
  command.add_option("QUEUE", request.queues, "Queues to work, in turn when several have jobs")->required();
  command
      .add_option("--exec", request.program,
                  "Program to run per job, with all following words as its arguments; it comes last")
      ->type_name("PROGRAM [ARGS...]")
      ->required();
  command
      .add_option("--pass-env", request.pass_env,
                  "A variable of the worker's own that the program gets all the same, such as DATABASE_URL")
      ->allow_extra_args(false)
      ->type_name("NAME");
  command.add_option("--concurrency", request.concurrency, "How many programs run at once")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1'000}))
      ->capture_default_str();
  command.add_option("--name", request.name,
                     "The worker's name in the record (default: host and process id)");
  command
      .add_option("--server", request.server,
                  "Get jobs through a server, faultline://HOST:PORT, with the key in FAULTLINE_API_KEY")
      ->type_name("URL");
  add_codes(command, "--bury-on", request.exit_codes.bury,
            "Exit codes after which another attempt would not help (default: 65)");
  add_codes(command, "--snooze-on", request.exit_codes.snooze,
            "Exit codes after which the job is tried later and the attempt does not count (default: 99)");
  command
      .add_option("--retry-on", request.exit_codes.retry,
                  "Exit codes that are failures; all that are in no list are")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("CODES");
  add_duration(command, "--snooze", request.snooze, "How much later a snoozed job is tried (default: 1m)");
  add_duration(command, "--kill-after", request.kill_after,
               "Between SIGTERM to a program that must stop and SIGKILL (default: 10s)");
  add_duration(command, "--drain-max", request.drain_max,
               "For programs to finish by themselves when the worker is told to stop (default: 30s)");
  command.add_flag("--until-empty", request.until_empty, "End when no job of these queues is due or running");
  command
      .add_option("--metrics-listen", request.metrics_listen,
                  "Where Prometheus finds this worker's metrics (default: nowhere)")
      ->type_name("HOST:PORT");
  command
      .add_option("--otlp-endpoint", request.otlp_endpoint,
                  "Where spans are exported to, by OTLP/HTTP with JSON (default: nowhere)")
      ->envname("OTEL_EXPORTER_OTLP_ENDPOINT")
      ->type_name("URL");
  command
      .add_option("--otlp-ca", request.otlp_ca,
                  "PEM file with the authorities that the certificate of an https:// endpoint may be of "
                  "(default: those of the system)")
      ->envname("OTEL_EXPORTER_OTLP_CERTIFICATE")
      ->type_name("FILE");
  command.add_option("--log-format", request.log.format, "How log lines are written")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command.add_option("--log-level", request.log.level, "From which severity on")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
}

}  // namespace

void add_work_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("work", "Work queues by running a program per job");
  command->fallthrough();
  command->footer(kProtocol);
  const auto request = std::make_shared<WorkRequest>();
  add_options(*command, *request);
  command->callback(
      [&chosen, request] { chosen = [request](Context& context) { return work(context, *request); }; });
}

}  // namespace faultline::cli
