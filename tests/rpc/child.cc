// A gRPC server in a process of its own: prints its port, then how many consumers it has whenever that
// changes.

#include <csignal>
#include <cstdio>
#include <thread>

#include "rpc/rpc_server.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto quiet = [](const faultline::Event&) {};
  const auto service = faultline::service::Service::start({.database = argv[1], .log = quiet});
  while (!service->ready()) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  const faultline::service::AllowAll everybody;
  const auto server = faultline::rpc::RpcServer::start({.log = quiet}, *service, everybody);
  if (!server) {
    std::fprintf(stderr, "%s\n", server.error().describe().c_str());
    return 1;
  }
  std::printf("%d\n", static_cast<int>((*server)->port()));
  for (std::size_t before = 0; true; std::this_thread::sleep_for(std::chrono::milliseconds{50})) {
    const std::size_t consumers = service->counters().consumers;
    if (consumers != before) std::printf("consumers %zu\n", consumers);
    before = consumers;
    std::fflush(stdout);
  }
}
