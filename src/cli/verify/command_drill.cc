#include <unistd.h>

#include <iostream>
#include <stdexcept>

#include "cli/commands.h"
#include "cli/support/terminal.h"
#include "drills/race_worker.h"
#include "drills/real_time.h"
#include "drills/report.h"

namespace faultline::cli {
namespace {

constexpr std::chrono::seconds kLineEvery{5};

struct LeaseRaceRequest {
  std::size_t runs = 1;
  std::uint64_t seed = 0;
  bool log = false;
  bool real_time = false;
};

/// How far a drill of many runs is, on standard error: a bar on a terminal, else a line now and then.
class ProgressDisplay {
 public:
  void operator()(const drills::DrillProgress& progress) {
    if (bar_) {
      std::cerr << '\r' << drills::to_bar(progress, columns_of(STDERR_FILENO)) << "\x1b[K" << std::flush;
    } else if (const auto now = std::chrono::steady_clock::now(); now >= next_line_) {
      next_line_ = now + kLineEvery;
      std::cerr << drills::to_text(progress) << '\n' << std::flush;
    }
  }
  void clear() const {
    if (bar_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  bool bar_ = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point next_line_ = std::chrono::steady_clock::now() + kLineEvery;
};

Expected<CommandResult> list_drills(Context&) {
  return CommandResult{
      .text =
          "drills:\n"
          "  lease-race  a worker stalls past its lease, another reclaims the job, the first "
          "comes back\n\n"
          "faultline drill lease-race --help says more.\n",
      .json = {{"drills", {"lease-race"}}}};
}

Expected<drills::LeaseRaceReport> hold_races(const drills::LeaseRaceOptions& options, bool real_time) {
  try {
    return real_time ? run_real_time_races(options) : run_lease_races(options);
  } catch (const std::runtime_error& error) {
    return std::unexpected(Failure{
        .code = "drill_failed",
        .message =
            "the drill could not be carried out: " + without_passwords_of(options.database, error.what()),
        .hint = "nothing was found out; see that the database is well, and try again"});
  }
}

Expected<CommandResult> lease_race(Context& context, const LeaseRaceRequest& request) {
  context.may_start_private_postgres();
  const auto database = context.database_url();
  if (!database) return std::unexpected(database.error());
  drills::LeaseRaceOptions options{
      .database = *database, .runs = request.runs, .seed = request.seed, .stop = context.stop_token()};
  const bool for_people = !request.log && !context.options().json;
  std::string text;
  if (request.log) {
    options.on_trace = [](const std::vector<std::string>& lines) {
      for (const std::string& line : lines) std::cout << line << '\n';
      std::cout << std::flush;
    };
  } else if (request.runs == 1) {
    options.on_trace = [&](const std::vector<std::string>& lines) { text = drills::to_text(lines) + "\n"; };
  }
  ProgressDisplay display;
  if (for_people && request.runs > 1) options.on_progress = std::ref(display);

  const auto report = hold_races(options, request.real_time);
  if (options.on_progress) display.clear();
  if (!report) return std::unexpected(report.error());
  text += drills::to_text(*report);
  if (request.log) {
    // Standard output has lines of JSON only.
    if (!report->passed()) std::cerr << text;
    text.clear();
  }
  return CommandResult{.text = std::move(text),
                       .json = drills::to_json(*report),
                       .exit_code = report->passed() ? ExitCode::ok : ExitCode::failure};
}

/// Adds what `--real-time` runs as a process of its own. Not for people: it is not listed.
void add_race_worker_command(CLI::App& drill, Action& chosen) {
  auto* command = drill.add_subcommand("lease-race-worker", "One worker of a race in real time");
  command->group("")->fallthrough();
  const auto options = std::make_shared<drills::RaceWorkerOptions>();
  command->add_option("--name", options->name)->required();
  command->add_option("--queue", options->queue)->required();
  command->add_flag("--stall", options->stalls);
  command->callback([&chosen, options] {
    chosen = [options](Context& context) -> Expected<CommandResult> {
      auto database = context.database_url();
      if (!database) return std::unexpected(database.error());
      options->database = std::move(*database);
      try {
        drills::run_race_worker(*options);
      } catch (const std::runtime_error& error) {
        return std::unexpected(Failure{.code = "drill_failed",
                                       .message = without_passwords_of(options->database, error.what()),
                                       .hint = ""});
      }
      return CommandResult{};
    };
  });
}

}  // namespace

void add_drill_command(CLI::App& app, Action& chosen) {
  auto* command = app.add_subcommand("drill", "Force a failure on purpose and see what becomes of it");
  command->fallthrough()->require_subcommand(0, 1);
  command->callback([&chosen, command] {
    if (command->get_subcommands().empty()) chosen = list_drills;
  });

  auto* race = command->add_subcommand(
      "lease-race", "A worker stalls past its lease, another reclaims the job, the first comes back");
  race->fallthrough();
  const auto request = std::make_shared<LeaseRaceRequest>();
  race->add_option("--runs", request->runs, "How many races, each a different one")
      ->check(CLI::Range(std::size_t{1}, std::size_t{10'000'000}))
      ->capture_default_str();
  race->add_option("--seed", request->seed, "What the races are drawn from; 0 begins with the plain story")
      ->capture_default_str();
  race->add_flag("--log", request->log, "Print the events as lines of JSON");
  race->add_flag(
      "--real-time", request->real_time,
      "With worker processes, a lease of 1 s and a stall of 2.5 s, instead of a clock in our hand");
  race->callback(
      [&chosen, request] { chosen = [request](Context& context) { return lease_race(context, *request); }; });
  add_race_worker_command(*command, chosen);
}

}  // namespace faultline::cli
