#include "server/server.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <ranges>
#include <thread>

#include "http/http_server.h"
#include "keys/keys.h"
#include "metrics/metrics.h"
#include "rpc/rpc_server.h"
#include "server/collector.h"
#include "server/deferred_watchdog.h"
#include "server/descriptors.h"
#include "server/wire_probe.h"
#include "service/service.h"
#include "tls/certificates.h"
#include "trace/exporter.h"

namespace faultline::server {
namespace {

using Clock = std::chrono::steady_clock;

service::ServiceOptions service_options(const config::Settings& settings, const EventSink& log,
                                        std::shared_ptr<metrics::Metrics> metrics) {
  return {.database = settings.database,
          .connections = settings.database_connections,
          .waiting_max = settings.waiting_max,
          .consumers_max = settings.streams_max,
          .payload_bytes_max = settings.payload_max,
          .json_depth_max = settings.json_depth_max,
          .batch_max = settings.batch_max,
          .log = log,
          .metrics = std::move(metrics)};
}

/// Under which names calls are taken. With keys a page of somebody else has none, whatever it is called.
std::optional<std::vector<std::string>> known_hosts(const config::Settings& settings) {
  if (settings.auth == config::Auth::keys) return std::nullopt;
  std::vector<std::string> hosts{"localhost", "127.0.0.1", "[::1]"};
  const std::string& own = settings.listen->host;
  hosts.push_back(own.contains(':') ? "[" + own + "]" : own);
  for (const auto name : std::views::split(settings.hosts, ',')) hosts.emplace_back(name.begin(), name.end());
  return hosts;
}

http::HttpServerOptions http_options(const config::Settings& settings, const ConnectionShares& shares,
                                     const EventSink& log) {
  return {.host = settings.listen->host,
          .port = settings.listen->port,
          .connections_max = shares.http,
          .header_max = settings.http_header_max,
          .body_max = settings.http_body_max,
          .json_depth_max = settings.json_depth_max,
          .header_timeout = settings.http_header_timeout,
          .body_timeout = settings.http_body_timeout,
          .idle_timeout = settings.http_idle_timeout,
          .write_timeout = settings.http_write_timeout,
          .cors_origin = settings.cors_origin,
          .hosts = known_hosts(settings),
          .log = log,
          .access_log = settings.access_log};
}

rpc::RpcServerOptions rpc_options(const config::Settings& settings, const ConnectionShares& shares,
                                  const EventSink& log) {
  return {.host = settings.grpc->host,
          .port = settings.grpc->port,
          .message_max = settings.http_body_max,
          .streams_max = settings.streams_max,
          .connections_max = shares.grpc,
          .log = log,
          .access_log = settings.access_log};
}

/// For the last spans, when all else is over.
constexpr std::chrono::milliseconds kSpansMax{2'000};

std::string instance_name() {
  std::array<char, 256> host{};
  const bool known = ::gethostname(host.data(), host.size() - 1) == 0;
  return (known ? std::string{host.data()} : "server") + ":" + std::to_string(::getpid());
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
  Expected<void> start_exporter();

  [[nodiscard]] std::uint16_t http_port() const override { return http_ ? http_->port() : std::uint16_t{0}; }
  [[nodiscard]] std::uint16_t grpc_port() const override { return rpc_ ? rpc_->port() : std::uint16_t{0}; }
  [[nodiscard]] bool ready() const override { return service_->ready(); }
  void drain() override {
    std::call_once(drained_, [this] { drain_once(); });
  }
  void hurry() override;

 private:
  void drain_once();
  void wait_for_the_load_balancer();
  [[nodiscard]] Clock::time_point drain_deadline();
  [[nodiscard]] std::string metrics() const;
  [[nodiscard]] WireProbe::Options probe_options();
  void tell(std::string_view name, std::vector<std::pair<std::string, std::string>> fields,
            Severity severity = Severity::info) const;

  const config::Settings settings_;
  const EventSink log_;
  const std::shared_ptr<metrics::Metrics> metrics_ = std::make_shared<metrics::Metrics>();
  std::unique_ptr<service::Authenticator> authenticator_;
  std::unique_ptr<trace::Exporter>
      exporter_;  ///< of spans, if there is an endpoint; the service refers to it
  std::unique_ptr<service::Service> service_;
  std::optional<DeferredWatchdog> watchdog_;
  std::optional<Collector> collector_;
  std::unique_ptr<http::HttpServer> http_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  std::atomic<const http::HttpServer*> http_for_metrics_{nullptr};  ///< http_, for its own threads
  std::optional<WireProbe> probe_;                                  ///< calls both

  std::once_flag drained_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hurried_ = false;  // guarded by mutex_
};

Expected<void> RunningServer::start_exporter() {
  if (settings_.otlp_endpoint.empty()) return {};
  auto exporter =
      trace::Exporter::start({.endpoint = settings_.otlp_endpoint,
                              .ca_file = settings_.otlp_ca,
                              .resource = {.service_name = "faultline-server", .instance = instance_name()},
                              .sample_ratio = settings_.otlp_sample_ratio,
                              .log = log_});
  if (!exporter) return std::unexpected(std::move(exporter.error()));
  exporter_ = std::move(*exporter);
  return {};
}

/// Nothing: no TLS.
Expected<std::shared_ptr<const tls::Certificates>> load_certificates(const config::Settings& settings,
                                                                     const EventSink& log) {
  if (settings.tls_cert.empty()) return nullptr;
  return tls::Certificates::load(
      {.files = {.cert = settings.tls_cert, .key = settings.tls_key, .client_ca = settings.tls_client_ca},
       .log = log});
}

Expected<void> RunningServer::begin() {
  auto certificates = load_certificates(settings_, log_);
  if (!certificates) return std::unexpected(std::move(certificates.error()));
  const auto shares = share_descriptors(settings_);
  if (!shares) return std::unexpected(shares.error());
  if (auto started = start_exporter(); !started) return started;
  if (settings_.auth == config::Auth::keys) {
    metrics_->know_refusals(keys::kRefusals);
    authenticator_ = keys::Keyring::start(
        {.database = settings_.database, .log = log_, .refused = [metrics = metrics_](std::string_view why) {
           metrics->turned_away(why);
         }});
  } else {
    authenticator_ = std::make_unique<service::AllowAll>();
  }
  service::ServiceOptions of_service = service_options(settings_, log_, metrics_);
  of_service.exporter = exporter_.get();
  of_service.still_good = [this](const service::Principal& who) { return authenticator_->still_good(who); };
  service_ = service::Service::start(std::move(of_service));
  if (settings_.watchdog)
    watchdog_.emplace(WatchdogOptions{.database = settings_.database,
                                      .log = log_,
                                      .name = "server",
                                      .on_sweep = metrics::counting(metrics_)});
  collector_.emplace(Collector::Options{.database = settings_.database,
                                        .sample_every = settings_.metrics_interval,
                                        .audit_every = settings_.audit_interval,
                                        .metrics = metrics_});
  // HTTP comes last: it shows the metrics of all.
  if (settings_.grpc) {
    rpc::RpcServerOptions options = rpc_options(settings_, *shares, log_);
    options.certificates = *certificates;
    auto rpc = rpc::RpcServer::start(std::move(options), *service_, *authenticator_);
    if (!rpc) return std::unexpected(std::move(rpc.error()));
    rpc_ = std::move(*rpc);
  }
  if (settings_.listen) {
    http::HttpServerOptions options = http_options(settings_, *shares, log_);
    options.certificates = *certificates;
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
  if (shares->limited) {
    tell("connections_limited",
         {{"descriptors", std::to_string(shares->descriptors)},
          {"http", std::to_string(shares->http)},
          {"grpc", std::to_string(shares->grpc)}},
         Severity::warning);
  }
  probe_.emplace(probe_options());
  return {};
}

WireProbe::Options RunningServer::probe_options() {
  using Protocol = WireProbe::Protocol;
  const bool tls = !settings_.tls_cert.empty();
  WireProbe::Options options;
  if (http_) options.wires.push_back({Protocol::http, {settings_.listen->host, http_port()}, tls});
  if (rpc_) options.wires.push_back({Protocol::grpc, {settings_.grpc->host, grpc_port()}, tls});
  options.changed = [this](const std::string& why) {
    service_->impede(why);
    if (why.empty()) {
      tell("wires_answered", {});
    } else {
      tell("wires_unanswered", {{"why", why}}, Severity::error);
    }
  };
  return options;
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
  probe_.reset();
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
  collector_.reset();
  if (exporter_) exporter_->finish(Clock::now() + kSpansMax);
  tell("server_exit", {});
}

std::string RunningServer::metrics() const {
  using metrics::Id;
  std::vector<metrics::Reading> readings;
  const auto add = [&](Id id, std::uint64_t value) {
    readings.push_back({.id = id, .value = static_cast<double>(value)});
  };
  const service::Service::Counters counters = service_->counters();
  add(Id::server_heartbeats, counters.heartbeats);
  add(Id::server_overload_refusals, counters.refused_overload);
  add(Id::server_consumers, counters.consumers);
  add(Id::server_waiting, counters.waiting);
  add(Id::server_ready, service_->ready() ? 1 : 0);
  if (const http::HttpServer* server = http_for_metrics_) {
    const http::HttpServer::Counters http = server->counters();
    add(Id::http_requests, http.requests);
    add(Id::http_refused_connections, http.refused_connections);
    add(Id::http_timeouts, http.timeouts);
    add(Id::http_connections, http.connections);
  }
  if (rpc_) {
    const rpc::RpcServer::Counters rpc = rpc_->counters();
    add(Id::grpc_calls, rpc.calls);
    add(Id::grpc_streams, rpc.streams);
    add(Id::grpc_connections, rpc.connections);
    add(Id::grpc_refused_connections, rpc.refused_connections);
  }
  return metrics_->text(readings);
}

void RunningServer::tell(std::string_view name, std::vector<std::pair<std::string, std::string>> fields,
                         Severity severity) const {
  log_({.name = name,
        .severity = severity,
        .at = std::chrono::system_clock::now(),
        .fields = std::move(fields)});
}

}  // namespace

Expected<std::unique_ptr<Server>> Server::start(const config::Settings& settings, EventSink log) {
  auto server = std::make_unique<RunningServer>(settings, std::move(log));
  if (auto begun = server->begin(); !begun) return std::unexpected(std::move(begun.error()));
  return server;
}

}  // namespace faultline::server
