#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/host_port.h"
#include "base/interrupt.h"

namespace faultline::server {

/// Calls the server's own addresses as a client would, again and again: that something listens there does not
/// say that anybody is served.
class WireProbe {
 public:
  enum class Protocol { http, grpc };
  struct Wire {
    Protocol protocol = Protocol::http;
    HostPort address{};
    bool tls = false;
  };
  struct Options {
    std::vector<Wire> wires{};
    std::chrono::milliseconds every{2'000};
    std::chrono::milliseconds patience{2'000};  ///< with one answer
    /// What keeps a client from being answered, for people, whenever that changes; empty: nothing.
    std::function<void(std::string why)> changed{};
  };

  explicit WireProbe(Options options);
  WireProbe(const WireProbe&) = delete;
  WireProbe& operator=(const WireProbe&) = delete;
  ~WireProbe();

 private:
  void run();

  const Options options_;
  Interrupt stop_;
  std::jthread thread_;
};

}  // namespace faultline::server
