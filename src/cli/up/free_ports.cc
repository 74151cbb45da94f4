#include "cli/up/free_ports.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "private_pg/file.h"

namespace faultline::cli {
namespace {

bool is_taken(const HostPort& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found) != 0)
    return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner{found, &::freeaddrinfo};
  const private_pg::FileDescriptor socket{
      ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol)};
  // As the server binds: what closed a moment ago does not count.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  return ::bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno == EADDRINUSE;
}

Expected<void> check(const std::optional<HostPort>& address, const std::string& what,
                     const std::string& option) {
  if (!address || address->port == 0 || !is_taken(*address)) return {};
  return std::unexpected(Failure{.code = "port_taken",
                                 .message = "port " + std::to_string(address->port) + " of " + address->host +
                                            ", for " + what + ", is taken by another program",
                                 .hint = "choose another one: " + option + " " + address->host +
                                         ":PORT, or port 0 for any; " + "\"ss -tlnp\" shows who has it"});
}

}  // namespace

Expected<void> check_ports(const config::Settings& settings) {
  if (auto http = check(settings.listen, "HTTP", "--listen"); !http) return http;
  return check(settings.grpc, "gRPC", "--grpc");
}

}  // namespace faultline::cli
