#include <chrono>
#include <iostream>
#include <thread>

#include "cli/commands.h"
#include "cli/server/serve_options.h"
#include "cli/support/log_sink.h"
#include "cli/support/postgres_keeper.h"
#include "cli/support/signal_count.h"
#include "cli/support/wait_until_ready.h"
#include "server/server.h"

namespace faultline::cli {
namespace {

std::string where(const HostPort& address, std::uint16_t port) {
  return HostPort{address.host, port}.to_string();
}

void say_where(const config::Settings& settings, const server::Server& server) {
  std::cerr << "Faultline serves";
  const std::string scheme = settings.tls_cert.empty() ? "http://" : "https://";
  if (settings.listen) std::cerr << " HTTP on " << scheme << where(*settings.listen, server.http_port());
  if (settings.listen && settings.grpc) std::cerr << ",";
  if (settings.grpc) std::cerr << " gRPC on " << where(*settings.grpc, server.grpc_port());
  std::cerr << ".\n";
  const bool only_here = (!settings.listen || settings.listen->is_loopback()) &&
                         (!settings.grpc || settings.grpc->is_loopback());
  if (only_here) std::cerr << "It can be reached from this machine only";
  if (only_here && settings.auth == config::Auth::none)
    std::cerr << ", by everybody on it: no keys are asked for";
  if (only_here) std::cerr << ".\n";
  if (!only_here && settings.allow_insecure)
    std::cerr << "It can be reached from other machines, and allow_insecure is set: see that nobody but "
                 "yours can.\n";
  std::cerr << std::flush;
}

Expected<CommandResult> serve(Context& context, const config::Sources& sources) {
  auto loaded = load_settings(context, sources);
  if (!loaded) return std::unexpected(loaded.error());
  config::Settings& settings = loaded->settings;
  auto database = database_for(context, settings);
  if (!database) return std::unexpected(database.error());
  settings.database = std::move(*database);
  const EventSink log = log_sink({.format = settings.log_format, .level = settings.log_level});
  auto server = server::Server::start(settings, log);
  if (!server) {
    return std::unexpected(Failure{.code = std::string{faultline::to_string(server.error().code)},
                                   .message = without_passwords_of(settings.database, server.error().message),
                                   .hint = server.error().hint});
  }
  SignalCount signals;
  context.on_signal([&] { signals.add(); });
  wait_until_ready(**server, signals, std::chrono::seconds{1});
  say_where(settings, **server);
  PostgresKeeper keeper{context, log, [&signals] { signals.add(); }};
  signals.wait_for(1);
  keeper.stop();
  const auto failure = keeper.failure();
  if (failure) signals.add();  // what is under way cannot be finished without a database
  std::jthread hurrier{[&] {
    if (signals.wait_for(2)) (*server)->hurry();
  }};
  (*server)->drain();
  signals.over();
  hurrier.join();
  context.on_signal({});
  server->reset();
  if (failure) return std::unexpected(*failure);
  return CommandResult{};
}

}  // namespace

void add_serve_command(CLI::App& app, Action& chosen) {
  auto* command =
      app.add_subcommand("serve", "Serve producers and workers in any language over HTTP and gRPC");
  command->fallthrough();
  const auto sources = std::make_shared<config::Sources>();
  add_settings(*command, *sources);
  command->callback(
      [&chosen, sources] { chosen = [sources](Context& context) { return serve(context, *sources); }; });
}

}  // namespace faultline::cli
