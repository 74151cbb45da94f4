#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/interrupt.h"
#include "faultline/error.h"

namespace faultline::metrics {

/// Answers GET /metrics over HTTP/1.1, one request per connection and one connection at a time: for a
/// Prometheus that comes every few seconds to a process that has no other HTTP. No keys, no TLS: it is meant
/// for this machine or a network of one's own. A client that is slow is sent away after a few seconds.
class Endpoint {
 public:
  /// Listens on HOST:PORT, [V6]:PORT or :PORT (this machine); port 0: any that is free. `text` is called on a
  /// thread of the endpoint until it is destroyed.
  [[nodiscard]] static Expected<std::unique_ptr<Endpoint>> start(std::string_view listen,
                                                                 std::function<std::string()> text);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  ~Endpoint();

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  Endpoint(int listener, std::uint16_t port, std::function<std::string()> text);
  void run() const;
  void serve(int client) const;

  Interrupt stop_;
  const int listener_;
  const std::uint16_t port_;
  const std::function<std::string()> text_;
  std::thread thread_;
};

}  // namespace faultline::metrics
