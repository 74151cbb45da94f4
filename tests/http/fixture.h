#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client.h"
#include "faultline/store.h"
#include "http/http_server.h"
#include "service/service.h"
#include "support/database.h"
#include "support/process.h"

namespace faultline::testing {

using Json = nlohmann::json;

/// A sink that remembers every line.
class Lines {
 public:
  [[nodiscard]] EventSink sink() {
    return [this](const Event& event) {
      const std::scoped_lock lock{mutex_};
      text_ += to_json_line(event) + "\n";
    };
  }
  [[nodiscard]] std::string text() const {
    const std::scoped_lock lock{mutex_};
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// A server on a database of its own, over real sockets.
class HttpTest : public ::testing::Test {
 protected:
  using ms = std::chrono::milliseconds;

  HttpTest() = default;
  ~HttpTest() override { stop(); }

  void SetUp() override {
    start_service();
    start_server();
  }

  void start_service(service::ServiceOptions options = {}) {
    options.database = database_.dsn();
    options.log = lines_.sink();
    service_ = service::Service::start(std::move(options));
    ASSERT_TRUE(eventually([&] { return service_->ready(); })) << service_->why_not_ready();
  }
  void start_server(http::HttpServerOptions options = {}) {
    server_.reset();
    options.log = lines_.sink();
    if (!options.metrics) options.metrics = [] { return std::string{"faultline_up 1\n"}; };
    server_ = must(http::HttpServer::start(std::move(options), *service_, authenticator()));
  }
  void stop() {
    server_.reset();
    if (service_) service_->stop();
    service_.reset();
  }
  [[nodiscard]] virtual const service::Authenticator& authenticator() const { return allow_all_; }

  [[nodiscard]] RawClient connect() const { return RawClient{server_->port()}; }
  [[nodiscard]] Reply get(std::string_view target, std::string_view headers = {}) const {
    return connect().request("GET", target, {}, headers);
  }
  [[nodiscard]] Reply post(std::string_view target, std::string_view body,
                           std::string_view headers = {}) const {
    return connect().request("POST", target, body, headers);
  }
  template <std::same_as<Json> J>
  [[nodiscard]] Reply post(std::string_view target, const J& body) const {
    return post(target, std::string_view{body.dump()});
  }

  void make_queue(const std::string& name) { must(store().set_queue(name, {})); }

  /// Adds a job and returns its id.
  [[nodiscard]] std::string add(const Json& job = {{"kind", "test"}}) const {
    const Reply reply = post("/v1/jobs", job);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return reply.json().at("job_id");
  }
  /// Claims one job, as it is in the answer.
  [[nodiscard]] Json claim(const std::string& worker = "w", const std::string& queue = "default") const {
    Json jobs;
    const bool claimed = eventually([&] {
      jobs =
          post("/v1/claim", Json{{"queue", queue}, {"worker", worker}, {"wait_ms", 1'000}}).json().at("jobs");
      return !jobs.empty();
    });
    if (!claimed) throw std::runtime_error("no job could be claimed");
    return jobs.at(0);
  }

  [[nodiscard]] Store store() const { return must(Store::open({.database = database_.dsn()})); }

  TestDatabase database_;
  Lines lines_;
  service::AllowAll allow_all_;
  std::unique_ptr<service::Service> service_;
  std::unique_ptr<http::HttpServer> server_;
};

}  // namespace faultline::testing
