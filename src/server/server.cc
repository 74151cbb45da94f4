#include "server/server.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "http/http_server.h"
#include "keys/keys.h"
#include "rpc/rpc_server.h"
#include "server/late_watchdog.h"
#include "server/metrics.h"
#include "service/service.h"

namespace faultline::server {
namespace {

using Clock = std::chrono::steady_clock;

service::Options service_options(const config::Settings& settings, const EventSink& log) {
  return {.database = settings.database,
          .connections = settings.database_connections,
          .waiting_max = settings.waiting_max,
          .consumers_max = settings.streams_max,
          .payload_bytes_max = settings.payload_max,
          .json_depth_max = settings.json_depth_max,
          .batch_max = settings.batch_max,
          .log = log};
}

http::Options http_options(const config::Settings& settings, const EventSink& log) {
  return {.host = settings.listen->host,
          .port = settings.listen->port,
          .connections_max = settings.http_connections_max,
          .header_max = settings.http_header_max,
          .body_max = settings.http_body_max,
          .json_depth_max = settings.json_depth_max,
          .header_timeout = settings.http_header_timeout,
          .body_timeout = settings.http_body_timeout,
          .idle_timeout = settings.http_idle_timeout,
          .write_timeout = settings.http_write_timeout,
          .cors_origin = settings.cors_origin,
          .tls_cert = settings.tls_cert,
          .tls_key = settings.tls_key,
          .log = log};
}

rpc::Options rpc_options(const config::Settings& settings, const EventSink& log) {
  return {.host = settings.grpc->host,
          .port = settings.grpc->port,
          .message_max = settings.http_body_max,
          .streams_max = settings.streams_max,
          .tls_cert = settings.tls_cert,
          .tls_key = settings.tls_key,
          .tls_client_ca = settings.tls_client_ca,
          .log = log};
}

class RunningServer final : public Server {
 public:
  RunningServer(const config::Settings& settings, EventSink log)
      : settings_(settings), log_(std::move(log)) {}
  ~RunningServer() override {
    hurry();
    drain();
  }

  Expected<void> begin();

  [[nodiscard]] std::uint16_t http_port() const override { return http_ ? http_->port() : std::uint16_t{0}; }
  [[nodiscard]] std::uint16_t grpc_port() const override { return rpc_ ? rpc_->port() : std::uint16_t{0}; }
  void drain() override {
    std::call_once(drained_, [this] { drain_once(); });
  }
  void hurry() override;

 private:
  void drain_once();
  void wait_for_the_load_balancer();
  [[nodiscard]] Clock::time_point drain_deadline();
  [[nodiscard]] std::string metrics() const;
  void tell(std::string_view name, std::vector<std::pair<std::string, std::string>> fields) const;

  const config::Settings settings_;
  const EventSink log_;
  std::unique_ptr<service::Authenticator> authenticator_;
  std::unique_ptr<service::Service> service_;
  std::optional<LateWatchdog> watchdog_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  std::atomic<const http::HttpServer*> http_for_metrics_{nullptr};  ///< http_, for its own threads

  std::once_flag drained_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;  // guarded by mutex_
};

Expected<void> RunningServer::begin() {
  if (settings_.auth == config::Auth::keys)
    authenticator_ = keys::Keyring::start({.database = settings_.database, .log = log_});
  else
    authenticator_ = std::make_unique<service::Everybody>();
  service_ = service::Service::start(service_options(settings_, log_));
  if (settings_.watchdog)
    watchdog_.emplace(WatchdogOptions{.database = settings_.database, .log = log_, .name = "server"});
  // HTTP comes last: it shows the metrics of all.
  if (settings_.grpc) {
    auto rpc = rpc::RpcServer::start(rpc_options(settings_, log_), *service_, *authenticator_);
    if (!rpc) return std::unexpected(std::move(rpc.error()));
    rpc_ = std::move(*rpc);
  }
  if (settings_.listen) {
    http::Options options = http_options(settings_, log_);
    options.metrics = [this] { return metrics(); };
    auto http = http::HttpServer::start(std::move(options), *service_, *authenticator_);
    if (!http) return std::unexpected(std::move(http.error()));
    http_ = std::move(*http);
    http_for_metrics_ = http_.get();
  }
  tell("server_started",
       {{"http", http_ ? settings_.listen->host + ":" + std::to_string(http_port()) : "off"},
        {"grpc", rpc_ ? settings_.grpc->host + ":" + std::to_string(grpc_port()) : "off"},
        {"auth", settings_.auth == config::Auth::keys ? "keys" : "none"},
        {"tls", settings_.tls_cert.empty() ? "off" : "on"}});
  return {};
}

void RunningServer::hurry() {
  {
    const std::lock_guard lock{mutex_};
    hurried_ = true;
  }
  changed_.notify_all();
}

void RunningServer::wait_for_the_load_balancer() {
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, settings_.drain_delay, [&] { return hurried_; });
}

Clock::time_point RunningServer::drain_deadline() {
  const std::lock_guard lock{mutex_};
  return hurried_ ? Clock::now() : Clock::now() + settings_.drain_max;
}

void RunningServer::drain_once() {
  if (!service_) return;
  tell("server_draining", {});
  service_->drain();
  wait_for_the_load_balancer();
  const Clock::time_point until = drain_deadline();
  {
    std::optional<std::jthread> beside;
    if (rpc_) beside.emplace([this, until] { rpc_->drain(until); });
    if (http_) http_->drain(until);
  }
  // Both wires stay until the service is silent: its last answers go to them.
  service_->stop();
  http_.reset();
  rpc_.reset();
  watchdog_.reset();
  tell("server_exit", {});
}

std::string RunningServer::metrics() const {
  MetricsText text;
  const service::Service::Counters counters = service_->counters();
  text.counter("faultline_server_enqueued_total", "Jobs added through this server.", counters.enqueued);
  text.counter("faultline_server_claimed_total", "Leases given out by this server.", counters.claimed);
  text.counter("faultline_server_settled_total", "Outcomes committed through this server.", counters.settled);
  text.counter("faultline_server_stale_writes_blocked_total",
               "Writes of this server's workers that the fence refused.", counters.stale);
  text.counter("faultline_server_heartbeats_total", "Leases renewed through this server.",
               counters.heartbeats);
  text.counter("faultline_server_overload_refusals_total", "Calls refused because too many waited.",
               counters.refused_overload);
  text.gauge("faultline_server_consumers", "Streams and long polls that wait for jobs.", counters.consumers);
  text.gauge("faultline_server_waiting", "Items that wait for the database.", counters.waiting);
  text.gauge("faultline_server_ready", "1 when the database can be used and the server does not drain.",
             service_->ready() ? 1 : 0);
  if (const http::HttpServer* server = http_for_metrics_) {
    const http::HttpServer::Counters http = server->counters();
    text.counter("faultline_http_requests_total", "HTTP requests answered.", http.requests);
    text.counter("faultline_http_refused_connections_total", "Connections over the limit.",
                 http.refused_connections);
    text.counter("faultline_http_timeouts_total", "Connections closed because the client was too slow.",
                 http.timeouts);
    text.gauge("faultline_http_connections", "Open HTTP connections.", http.connections);
  }
  if (rpc_) {
    const rpc::RpcServer::Counters rpc = rpc_->counters();
    text.counter("faultline_grpc_calls_total", "gRPC calls answered.", rpc.calls);
    text.gauge("faultline_grpc_streams", "Open StreamJobs streams.", rpc.streams);
  }
  return text.text();
}

void RunningServer::tell(std::string_view name,
                         std::vector<std::pair<std::string, std::string>> fields) const {
  log_({.name = name, .at = std::chrono::system_clock::now(), .fields = std::move(fields)});
}

}  // namespace

Expected<std::unique_ptr<Server>> Server::start(const config::Settings& settings, EventSink log) {
  auto server = std::make_unique<RunningServer>(settings, std::move(log));
  if (auto begun = server->begin(); !begun) return std::unexpected(std::move(begun.error()));
  return server;
}

}  // namespace faultline::server
