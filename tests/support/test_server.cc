// The ctest fixture: `test_server start` leaves the test run's PostgreSQL running, `test_server stop`
// stops it. Between the two, every test process shares it.

#include <iostream>
#include <string_view>

#include "support/database.h"

namespace {

using faultline::PrivatePostgres;
using faultline::testing::forget_provided_server;
using faultline::testing::TestServer;

int start() {
  forget_provided_server();
  auto options = TestServer::options();
  options.keep_running = true;
  const auto server = PrivatePostgres::start(options);
  if (!server) {
    std::cerr << server.error().describe() << '\n';
    return 1;
  }
  TestServer::instance().drop_orphaned_databases();
  std::cout << server->dsn() << '\n';
  return 0;
}

int stop() {
  forget_provided_server();
  const auto outcome = PrivatePostgres::stop_server(TestServer::options());
  if (!outcome) {
    std::cerr << outcome.error().describe() << '\n';
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view verb = argc == 2 ? argv[1] : "";
  try {
    if (verb == "start") return start();
    if (verb == "stop") return stop();
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  std::cerr << "usage: test_server start|stop\n";
  return 2;
}
