#include "bench/bench_server.h"

#include <iostream>
#include <thread>

#include "bench/http_client.h"
#include "bench/workload.h"

namespace faultline::bench {
namespace {

constexpr std::chrono::seconds kReadyMax{30};

}  // namespace

BenchServer::BenchServer(const std::string& database) {
  config::Settings settings;
  settings.database = database;
  settings.listen = HostPort{"127.0.0.1", 0};
  settings.grpc = HostPort{"127.0.0.1", 0};
  server_ = must(server::Server::start(settings, text_lines(std::cerr, Severity::warning)));
  HttpClient connection{http_port()};
  const auto until = Clock::now() + kReadyMax;
  while (connection.exchange("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n") != 200) {
    if (Clock::now() > until) throw std::runtime_error("the server did not become ready");
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

}  // namespace faultline::bench
