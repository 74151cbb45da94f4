#include "rpc/rpc_server.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/service_type.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "rpc/calls.h"
#include "rpc/grpc_log_redirect.h"
#include "rpc/job_stream.h"
#include "rpc/tls_files.h"

namespace faultline::rpc {
namespace {

constexpr auto kHealthInterval = std::chrono::seconds{1};
constexpr unsigned kCertificateInterval = 1;  // seconds between two looks at the files
/// Of one connection, so that one client cannot take everything.
constexpr int kStreamsPerConnection = 1'000;
constexpr std::size_t kBufferBytes = 268'435'456;
/// Reflection runs on threads of its own.
constexpr int kThreads = 8;
/// A connection that says nothing is asked whether it lives; one that asks more often than this is closed.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kPingIntervalMinMs = 5'000;

Error cannot_listen(const std::string& address) {
  return {
      .code = ErrorCode::unavailable,
      .message = "cannot listen for gRPC on " + address,
      .hint =
          "another program may listen there, or this machine may not have the address; choose another one"};
}

std::string address_of(const RpcServerOptions& options) {
  const bool bare_ipv6 = options.host.contains(':') && !options.host.starts_with('[');
  return (bare_ipv6 ? "[" + options.host + "]" : options.host) + ":" + std::to_string(options.port);
}

std::shared_ptr<grpc::ServerCredentials> credentials_of(const RpcServerOptions& options) {
  if (options.tls_cert.empty()) return grpc::InsecureServerCredentials();
  namespace tls = grpc::experimental;
  tls::TlsServerCredentialsOptions credentials{std::make_shared<tls::FileWatcherCertificateProvider>(
      options.tls_key, options.tls_cert, options.tls_client_ca, kCertificateInterval)};
  credentials.watch_identity_key_cert_pairs();
  if (!options.tls_client_ca.empty()) {
    credentials.watch_root_certs();
    credentials.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(credentials);
}

void set_limits(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingIntervalMinMs);
  // Two servers on one port would share its connections, without either of them knowing.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota{"faultline"};
  quota.Resize(kBufferBytes);
  quota.SetMaxThreads(kThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
}

class RunningRpcServer final : public RpcServer {
 public:
  RunningRpcServer(RpcServerOptions options, service::Service& service,
                   const service::Authenticator& authenticator)
      : options_(std::move(options)),
        log_redirect_(options_.log),
        shared_{.service = service,
                .authenticator = authenticator,
                .log = options_.log,
                .access_log = options_.access_log,
                .certificates = !options_.tls_client_ca.empty(),
                .places = service::Shares{options_.streams_max}},
        calls_(make_calls(shared_)) {}

  ~RunningRpcServer() override { drain(std::chrono::steady_clock::now()); }
  RunningRpcServer(const RunningRpcServer&) = delete;
  RunningRpcServer& operator=(const RunningRpcServer&) = delete;

  std::optional<Error> listen() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    set_limits(builder, options_);
    int port = 0;
    builder.AddListeningPort(address_of(options_), credentials_of(options_), &port);
    builder.RegisterService(calls_.get());
    server_ = builder.BuildAndStart();
    if (!server_ || port <= 0) return cannot_listen(address_of(options_));
    port_ = static_cast<std::uint16_t>(port);
    tell_health();
    health_ = std::jthread{[this](const std::stop_token& stop) { watch_health(stop); }};
    return std::nullopt;
  }

  [[nodiscard]] std::uint16_t port() const override { return port_; }

  void drain(std::chrono::steady_clock::time_point until) override {
    if (!server_) return;
    drain_job_streams(shared_);
    health_ = {};
    server_->GetHealthCheckService()->SetServingStatus(false);
    const auto left = until - std::chrono::steady_clock::now();
    server_->Shutdown(std::chrono::system_clock::now() + left);
  }

  [[nodiscard]] Counters counters() const override {
    const std::lock_guard lock{shared_.mutex};
    return {.calls = shared_.calls, .streams = shared_.streams.size()};
  }

 private:
  void tell_health() {
    const bool ready = shared_.service.ready();
    auto& health = *server_->GetHealthCheckService();
    health.SetServingStatus(ready);
    health.SetServingStatus("faultline.v1.Faultline", ready);
  }

  void watch_health(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any stopped;
    std::unique_lock lock{mutex};
    while (!stopped.wait_for(lock, stop, kHealthInterval, [] { return false; }) && !stop.stop_requested()) {
      tell_health();
    }
  }

  const RpcServerOptions options_;
  const GrpcLogRedirect log_redirect_;
  mutable SharedState shared_;
  const std::unique_ptr<grpc::Service> calls_;
  std::uint16_t port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::jthread health_;  // after the server, which it tells
};

std::optional<Error> check(const RpcServerOptions& options) {
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return Error{.code = ErrorCode::invalid_argument,
                 .message = "TLS needs both a certificate and its private key",
                 .hint = "name both files, or none"};
  }
  if (!options.tls_cert.empty()) {
    return check_tls_files(options.tls_cert, options.tls_key, options.tls_client_ca);
  }
  if (options.tls_client_ca.empty()) return std::nullopt;
  return Error{.code = ErrorCode::invalid_argument,
               .message = "client certificates need TLS",
               .hint = "name the server's own certificate and private key, too"};
}

}  // namespace

Expected<std::unique_ptr<RpcServer>> RpcServer::start(RpcServerOptions options, service::Service& service,
                                                      const service::Authenticator& authenticator) {
  if (auto problem = check(options)) return std::unexpected(std::move(*problem));
  auto server = std::make_unique<RunningRpcServer>(std::move(options), service, authenticator);
  if (auto problem = server->listen()) return std::unexpected(std::move(*problem));
  return server;
}

}  // namespace faultline::rpc
