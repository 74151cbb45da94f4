#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "faultline/error.h"
#include "faultline/event.h"
#include "service/authenticator.h"
#include "service/service.h"
#include "tls/certificates.h"

namespace faultline::rpc {

struct RpcServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  std::size_t message_max = 16'777'216;
  std::size_t streams_max = 10'000;
  std::size_t connections_max = 4'096;
  /// Nothing: no TLS. With a client authority, callers must have a certificate of it.
  std::shared_ptr<const tls::Certificates> certificates{};
  EventSink log{};          ///< required
  bool access_log = false;  ///< a line for every answer
};

/// gRPC over a `Service`, by the callback API. Runs until it is destroyed.
class RpcServer {
 public:
  /// The service and the authenticator must outlive it.
  [[nodiscard]] static Expected<std::unique_ptr<RpcServer>> start(
      RpcServerOptions options, service::Service& service, const service::Authenticator& authenticator);
  virtual ~RpcServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// The standard health service says NOT_SERVING; streams are told to go elsewhere; calls under way are
  /// answered until the deadline, then cancelled.
  virtual void drain(std::chrono::steady_clock::time_point until) = 0;
  struct Counters {
    std::uint64_t calls = 0;
    std::size_t streams = 0, connections = 0;
    std::uint64_t refused_connections = 0;  ///< over the limit, or cut to make room
  };
  [[nodiscard]] virtual Counters counters() const = 0;
};

}  // namespace faultline::rpc
