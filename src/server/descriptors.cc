#include "server/descriptors.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace faultline::server {
namespace {

/// For what is neither a client nor a connection of the service: libraries, listeners, files, the watchdog's,
/// the keyring's and the collector's connections, and clients that were cut and are not closed yet.
constexpr std::size_t kReserved = 128;
/// Fewer are no server.
constexpr std::size_t kConnectionsMin = 8;

std::size_t raise_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1'024;
  if (limit.rlim_cur != limit.rlim_max) {
    const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

}  // namespace

Expected<ConnectionShares> share_descriptors(const config::Settings& settings) {
  ConnectionShares shares{.descriptors = raise_limit(),
                          .http = settings.listen ? settings.http_connections_max : 0,
                          .grpc = settings.grpc ? settings.grpc_connections_max : 0};
  const std::size_t used = kReserved + settings.database_connections;
  const std::size_t left = shares.descriptors > used ? shares.descriptors - used : 0;
  if (shares.http + shares.grpc <= left) return shares;
  if (left < 2 * kConnectionsMin) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "this process may have " + std::to_string(shares.descriptors) +
                                            " file descriptors, which is not enough to serve anybody",
                                 .hint = "raise the limit (ulimit -Hn, or LimitNOFILE of its unit) to " +
                                         std::to_string(used + shares.http + shares.grpc)});
  }
  shares.limited = true;
  // Half for each, and what one does not want is the other's.
  const std::size_t half = left / 2;
  if (shares.http <= half) {
    shares.grpc = left - shares.http;
  } else {
    shares.grpc = std::min(shares.grpc, half);
    shares.http = left - shares.grpc;
  }
  return shares;
}

}  // namespace faultline::server
