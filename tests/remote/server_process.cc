// A server in a process of its own: `server_process DATABASE PORT`. Says its port, and runs until it is
// killed.

#include <unistd.h>

#include <charconv>
#include <iostream>
#include <string_view>

#include "rpc/rpc_server.h"
#include "service/service.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::uint16_t port = 0;
  const std::string_view text{argv[2]};
  std::from_chars(text.data(), text.data() + text.size(), port);
  const faultline::EventSink quiet = [](const faultline::Event&) {};
  const auto service = faultline::service::Service::start({.database = argv[1], .log = quiet});
  const faultline::service::AllowAll everybody;
  const auto server = faultline::rpc::RpcServer::start({.port = port, .log = quiet}, *service, everybody);
  if (!server) {
    std::cerr << server.error().describe() << '\n';
    return 1;
  }
  std::cout << "port " << (*server)->port() << '\n' << std::flush;
  for (;;) ::pause();
}
