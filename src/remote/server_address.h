#pragma once

#include <string_view>
#include <vector>

#include "base/host_port.h"
#include "faultline/error.h"

namespace faultline::remote {

/// Where a server is, from `faultline://host:port` or `faultline+tls://host:port`.
struct ServerAddress {
  std::vector<HostPort> targets;  ///< one for each server that may be used
  bool tls = false;
  bool insecure = false;  ///< `?insecure=true`: a key may cross the network in the clear

  /// All targets are this machine.
  [[nodiscard]] bool is_loopback() const;
};

[[nodiscard]] Expected<ServerAddress> parse_server_address(std::string_view url);

}  // namespace faultline::remote
