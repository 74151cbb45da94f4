// Addresses, to listen on and to connect to: what was read can be written, and is then read the same.

#include "base/host_port.h"

#include "fuzz/target.h"

namespace faultline::fuzz {
namespace {

constexpr std::uint16_t kDefaultPort = 8001;

template <class Parse>
void parse_twice(std::string_view text, const Parse& parse) {
  const auto address = parse(text);
  if (!address) return require(!address.error().empty(), "a refusal says why");
  require(!address->host.empty() && !address->host.contains('\0'),
          "there is a host, and it can be a C string");
  require(parse(address->to_string()) == *address, "an address is read as it is written");
}

}  // namespace

void run(std::string_view input) {
  parse_twice(input, parse_listen_address);
  parse_twice(input, [](std::string_view text) { return parse_connect_address(text, kDefaultPort); });
  const auto connect = parse_connect_address(input, kDefaultPort);
  const auto listen = parse_listen_address(input);
  if (connect) {
    require(connect->port != 0, "nobody connects to port 0");
    require(!listen || *listen == *connect, "both mean the same address");
    (void)connect->is_loopback();
  }
}

}  // namespace faultline::fuzz
