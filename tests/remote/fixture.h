#pragma once

#include <memory>
#include <string>

#include "metrics/samples.h"
#include "rpc/rpc_server.h"
#include "service/service.h"
#include "worker/fixture.h"

namespace faultline::testing {

/// A server in this process.
class LocalServer {
 public:
  explicit LocalServer(const std::string& database, rpc::RpcServerOptions options = {},
                       const service::Authenticator* authenticator = nullptr)
      : service_(service::Service::start(
            {.database = database, .log = [](const Event&) {}, .metrics = metrics_})) {
    options.log = [](const Event&) {};
    rpc_ = must(rpc::RpcServer::start(std::move(options), *service_,
                                      authenticator != nullptr ? *authenticator : allow_all_));
    if (!eventually([&] { return service_->ready(); })) throw std::runtime_error("the server is not ready");
  }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;
  ~LocalServer() {
    rpc_.reset();
    service_->stop();
  }

  [[nodiscard]] std::uint16_t port() const { return rpc_->port(); }
  [[nodiscard]] std::string url() const { return "faultline://127.0.0.1:" + std::to_string(port()); }
  [[nodiscard]] service::Service& service() { return *service_; }
  /// A metric of the service, all labels together.
  [[nodiscard]] std::uint64_t counted(std::string_view metric) const {
    return static_cast<std::uint64_t>(sum_of(metrics_->text(), metric));
  }
  /// As a server does that is told to stop: streams are sent away, calls are answered.
  void drain() { service_->drain(); }

 private:
  const service::AllowAll allow_all_;
  const std::shared_ptr<metrics::Metrics> metrics_ = std::make_shared<metrics::Metrics>();
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<rpc::RpcServer> rpc_;
};

/// What a worker is made of, on a database or through a server.
struct LinkedOptions : WorkerOptions {
  std::string server{};  ///< empty: it is on the database
};
[[nodiscard]] inline Worker make_worker(const LinkedOptions& options) {
  return options.server.empty() ? Worker{options} : Worker::connect(options.server, options);
}

class RemoteTest : public WorkerTest {
 protected:
  /// Options of a worker that has its jobs through this server.
  [[nodiscard]] LinkedOptions remote(const std::string& url, std::string name = "w") {
    LinkedOptions made{options(std::move(name))};
    made.database.clear();
    made.server = url;
    return made;
  }
};

}  // namespace faultline::testing
