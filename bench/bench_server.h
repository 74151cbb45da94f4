#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/server.h"

namespace faultline::bench {

/// A Faultline server in this process, with the usual settings, on ports of its own.
class BenchServer {
 public:
  /// Ready when it returns. Throws std::runtime_error.
  explicit BenchServer(const std::string& database);

  [[nodiscard]] std::uint16_t http_port() const { return server_->http_port(); }
  /// For `Worker::connect`.
  [[nodiscard]] std::string url() const {
    return "faultline://127.0.0.1:" + std::to_string(server_->grpc_port());
  }

 private:
  std::unique_ptr<server::Server> server_;
};

}  // namespace faultline::bench
