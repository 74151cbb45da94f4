#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/event.h"
#include "service/authenticator.h"
#include "service/service.h"
#include "tls/certificates.h"

namespace faultline::http {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any free one
  std::size_t threads = 2;
  std::size_t connections_max = 4'096;
  std::size_t header_max = 16'384;
  std::size_t body_max = 16'777'216;
  std::size_t json_depth_max = 128;
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};
  std::chrono::milliseconds idle_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};
  std::string cors_origin{};
  /// Under which names calls are taken, without ports, an IPv6 address in brackets; nothing: under every one.
  std::optional<std::vector<std::string>> hosts{};
  std::shared_ptr<const tls::Certificates> certificates{};  ///< nothing: no TLS
  EventSink log{};                                          ///< required
  bool access_log = false;                                  ///< a line for every answer
  std::function<std::string()> metrics{};  ///< the body of GET /metrics, in Prometheus' text format
};

/// HTTP/1.1 with JSON over a `Service`. Runs until it is destroyed.
class HttpServer {
 public:
  /// The service and the authenticator must outlive it.
  [[nodiscard]] static Expected<std::unique_ptr<HttpServer>> start(
      HttpServerOptions options, service::Service& service, const service::Authenticator& authenticator);
  virtual ~HttpServer() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// Takes no more connections, closes idle ones, ends event streams, answers what is under way with
  /// `Connection: close`. Returns when all are closed, or at the deadline.
  virtual void drain(std::chrono::steady_clock::time_point until) = 0;
  struct Counters {
    std::uint64_t requests = 0, refused_connections = 0, timeouts = 0;
    std::size_t connections = 0;
  };
  [[nodiscard]] virtual Counters counters() const = 0;
};

}  // namespace faultline::http
