#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "cli/commands.h"
#include "cli/server/serve_options.h"
#include "cli/support/failures.h"
#include "cli/support/log_sink.h"
#include "cli/support/postgres_keeper.h"
#include "cli/support/signal_count.h"
#include "cli/support/wait_until_ready.h"
#include "cli/up/demo.h"
#include "cli/up/free_ports.h"
#include "cli/up/up_display.h"
#include "cli/up/up_lock.h"
#include "server/server.h"

namespace faultline::cli {
namespace {

namespace fs = std::filesystem;

/// A new cluster is about 40 MiB, and its log of changes grows to more.
constexpr std::uintmax_t kSpaceMin = 128ULL * 1024 * 1024;

struct UpRequest {
  config::Sources sources;
  bool no_demo = false;
};

/// All that runs, and where.
struct Running {
  std::optional<UpLock> instance;
  std::unique_ptr<server::Server> server;
  std::unique_ptr<Demo> demo;
  std::string http;      ///< its URL; empty: none
  std::string grpc;      ///< its address; empty: none
  std::string database;  ///< for people
  std::string command;   ///< how to call this program, so that it means this database
};

Expected<void> check_space(const fs::path& data_dir) {
  fs::path existing = fs::absolute(data_dir);
  std::error_code error;
  while (!fs::exists(existing, error) && existing.has_relative_path()) existing = existing.parent_path();
  const fs::space_info space = fs::space(existing, error);
  if (error || space.capacity == 0 || space.available >= kSpaceMin) return {};
  return std::unexpected(Failure{
      .code = "no_space",
      .message = "the disk of " + data_dir.string() + " has " + std::to_string(space.available / 1'048'576) +
                 " MiB free, and PostgreSQL should have " + std::to_string(kSpaceMin / 1'048'576),
      .hint = "free some space, or choose a directory on another disk with --data-dir"});
}

/// What can be found out before anything is started.
Expected<void> check_before_start(const Context& context, const config::Settings& settings) {
  if (settings.database.empty()) {
    const fs::path data_dir = context.private_postgres_options().data_dir;
    if (auto alone = UpLock::check(data_dir); !alone) return alone;
    if (auto space = check_space(data_dir); !space) return space;
  }
  return check_ports(settings);
}

/// A database that was named is migrated too: that is what this command is asked for.
Expected<void> open_database(Context& context, config::Settings& settings, Running& running) {
  const bool named = !settings.database.empty();
  auto url = database_for(context, settings);
  if (!url) return std::unexpected(std::move(url.error()));
  settings.database = std::move(*url);
  running.command = ::program_invocation_name;
  if (named) {
    auto connection = context.connect_to(settings.database);
    if (!connection) return std::unexpected(std::move(connection.error()));
    if (auto migrated = migrate(*connection, {}); !migrated)
      return std::unexpected(std::move(migrated.error()));
    running.database = without_passwords(settings.database);
    running.command += " --database " + running.database;
    return {};
  }
  const fs::path data_dir = context.private_postgres_options().data_dir;
  running.database = "a private PostgreSQL in " + data_dir.string();
  if (!context.options().data_dir.empty()) running.command += " --data-dir " + data_dir.string();
  auto instance = UpLock::take(data_dir);
  if (!instance) return std::unexpected(std::move(instance.error()));
  running.instance.emplace(std::move(*instance));
  return {};
}

Failure failure_of(const Error& error, const config::Settings& settings) {
  Failure failure = to_failure(error);
  failure.message = without_passwords_of(settings.database, std::move(failure.message));
  return failure;
}

void tell_race(UpDisplay& display, const Running& running, JobId job) {
  display.say(
      "          the whole story: " + display.bold(running.command + " jobs show " + job.to_string()) + "\n",
      nlohmann::json{{"event", "demo_race"}, {"job", job.to_string()}}.dump());
}

Expected<void> start_all(const config::Settings& settings, bool demo, UpDisplay& display, Running& running) {
  const EventSink sink = [&display](const Event& event) { display.tell(event); };
  auto server = server::Server::start(settings, sink);
  if (!server) return std::unexpected(failure_of(server.error(), settings));
  running.server = std::move(*server);
  const std::string scheme = settings.tls_cert.empty() ? "http://" : "https://";
  if (settings.listen)
    running.http = scheme + HostPort{settings.listen->host, running.server->http_port()}.to_string();
  if (settings.grpc) running.grpc = HostPort{settings.grpc->host, running.server->grpc_port()}.to_string();
  if (running.instance)
    running.instance->tell({.pid = ::getpid(), .http = running.http, .grpc = running.grpc});
  if (!demo) return {};
  auto started =
      Demo::start({.database = settings.database, .log = sink, .on_race = [&display, &running](JobId job) {
                     tell_race(display, running, job);
                   }});
  if (!started) return std::unexpected(failure_of(started.error(), settings));
  running.demo = std::move(*started);
  return {};
}

/// Where everything is, and what to try next.
std::string welcome(const UpDisplay& display, const Running& running) {
  std::string text = "\n" + display.bold("Faultline is up.") + "\n";
  if (!running.http.empty()) text += "  HTTP      " + running.http + "\n";
  if (!running.grpc.empty()) text += "  gRPC      " + running.grpc + "\n";
  text += "  database  " + running.database + "\n\n";
  text += display.bold("To try, in another terminal:") + "\n";
  if (!running.http.empty()) {
    text += "  curl " + running.http + "/v1/queues\n";
    text += "  curl " + running.http +
            "/v1/jobs -H 'Content-Type: application/json' -d '{\"kind\":\"greet\",\"payload\":\"you\"}'\n";
  }
  text += "  " + running.command + " work default --exec cat\n";
  text += "  " + running.command + " jobs list\n";
  text += "  " + running.command + " top\n\n";
  if (running.demo)
    text +=
        "Demo jobs trickle through the queue \"demo\". In a moment a worker will stall past its lease, "
        "another\n"
        "will take its job over, and the late write of the first will be refused. Without them: --no-demo.\n";
  return text + "Ctrl-C stops all of it; the data stays.\n\n";
}

std::string welcome_json(const Running& running) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::json{} : nlohmann::json(text);
  };
  return nlohmann::json{{"event", "up"},
                        {"pid", ::getpid()},
                        {"http", or_null(running.http)},
                        {"grpc", or_null(running.grpc)},
                        {"database", running.database},
                        {"demo", running.demo != nullptr}}
      .dump();
}

/// Until a signal comes, or PostgreSQL cannot be kept running.
Expected<void> wait_and_drain(Context& context, SignalCount& signals, UpDisplay& display, Running& running) {
  PostgresKeeper keeper{context, [&display](const Event& event) { display.tell(event); },
                        [&signals] { signals.add(); }, PostgresKeeper::WhenReplaced::renew};
  signals.wait_for(1);
  keeper.stop();
  const auto failure = keeper.failure();
  if (failure) signals.add();  // what is under way cannot be finished without a database
  display.say(failure ? "\nPostgreSQL cannot be kept running. Stopping.\n"
                      : "\nStopping. Ctrl-C once more does not wait for what is under way.\n");
  std::jthread hurrier{[&] {
    if (!signals.wait_for(2)) return;
    if (running.demo) running.demo->hurry();
    running.server->hurry();
  }};
  if (running.demo) running.demo->drain();
  running.server->drain();
  signals.over();
  hurrier.join();
  if (failure) return std::unexpected(*failure);
  return {};
}

UpDisplay::Options display_options(const Context& context, const config::Settings& settings) {
  const char* no_colour = std::getenv("NO_COLOR");
  return {.json = context.options().json || settings.log_format == "json",
          .colour = ::isatty(STDOUT_FILENO) == 1 && (no_colour == nullptr || *no_colour == '\0'),
          .all = severity_of(settings.log_level) == Severity::debug};
}

Expected<CommandResult> up(Context& context, const UpRequest& request) {
  context.may_start_private_postgres();
  auto loaded = load_settings(context, request.sources);
  if (!loaded) return std::unexpected(std::move(loaded.error()));
  config::Settings& settings = loaded->settings;
  if (auto good = check_before_start(context, settings); !good)
    return std::unexpected(std::move(good.error()));
  // A reader that goes away must not take PostgreSQL's last user with it.
  ::signal(SIGPIPE, SIG_IGN);
  UpDisplay display{std::cout, display_options(context, settings)};
  display.say("Starting …\n");
  Running running;
  if (auto opened = open_database(context, settings, running); !opened)
    return std::unexpected(std::move(opened.error()));
  SignalCount signals;
  context.on_signal([&] { signals.add(); });
  auto went_well = start_all(settings, !request.no_demo, display, running);
  if (went_well) {
    wait_until_ready(*running.server, signals, std::chrono::seconds{10});
    display.say(welcome(display, running), welcome_json(running));
    went_well = wait_and_drain(context, signals, display, running);
  }
  running.demo.reset();
  running.server.reset();
  context.on_signal({});
  if (!went_well) return std::unexpected(std::move(went_well.error()));
  if (auto closed = context.close(); !closed) return std::unexpected(std::move(closed.error()));
  return CommandResult{.text = "Faultline is down; its data is in " + running.database + ".\n",
                       .json = {{"event", "down"}}};
}

}  // namespace

void add_up_command(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("up", "Start everything: PostgreSQL, server, watchdog, and a demo to look at");
  command->fallthrough();
  const auto request = std::make_shared<UpRequest>();
  command->add_flag("--no-demo", request->no_demo, "Leave out the demo worker and its jobs");
  add_settings(*command, request->sources);
  command->callback(
      [&chosen, request] { chosen = [request](Context& context) { return up(context, *request); }; });
}

}  // namespace faultline::cli
