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
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "rpc/calls.h"
#include "rpc/grpc_log_redirect.h"
#include "rpc/job_stream.h"
#include "rpc/listener.h"
#include "rpc/server_credentials.h"

namespace faultline::rpc {
namespace {

constexpr auto kHealthInterval = std::chrono::seconds{1};
/// Of one connection, so that one client cannot take everything.
constexpr int kStreamsPerConnection = 1'000;
constexpr std::size_t kBufferBytes = 268'435'456;
/// Reflection runs on threads of its own.
constexpr int kThreads = 8;
/// A connection that says nothing is asked whether it lives; one that asks more often than this is closed.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
constexpr int kPingIntervalMinMs = 5'000;
/// At once: what was read is worked off, even if the client has been cut meanwhile.
constexpr int kReadBytesMax = 32'768;
/// For TLS and the first settings of HTTP/2.
constexpr int kHandshakeMs = 10'000;

void set_limits(grpc::ServerBuilder& builder, const RpcServerOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.message_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kPingIntervalMinMs);
  // Windows that do not grow: who may send much unanswered could not be told from who sends too much.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder.AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kReadBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
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
                .admitted = [this](const std::string& peer) { listener_->admitted(peer); },
                .certificates = options_.certificates && options_.certificates->ask_clients(),
                .places = service::Shares{options_.streams_max}},
        calls_(make_calls(shared_)) {}

  ~RunningRpcServer() override { drain(std::chrono::steady_clock::now()); }
  RunningRpcServer(const RunningRpcServer&) = delete;
  RunningRpcServer& operator=(const RunningRpcServer&) = delete;

  std::optional<Error> listen() {
    auto listener = Listener::bind({.host = options_.host,
                                    .port = options_.port,
                                    .connections_max = options_.connections_max,
                                    .log = options_.log});
    if (!listener) return std::move(listener.error());
    listener_ = std::move(*listener);
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    set_limits(builder, options_);
    auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        server_credentials(options_.certificates));
    builder.RegisterService(calls_.get());
    server_ = builder.BuildAndStart();
    if (!server_) {
      return Error{.code = ErrorCode::internal,
                   .message = "gRPC does not start",
                   .hint = "the log says what gRPC says about it"};
    }
    tell_health();
    listener_->start(std::move(acceptor));
    health_ = std::jthread{[this](const std::stop_token& stop) { watch_health(stop); }};
    return std::nullopt;
  }

  [[nodiscard]] std::uint16_t port() const override { return listener_->port(); }

  void drain(std::chrono::steady_clock::time_point until) override {
    if (!server_) return;
    listener_->stop();
    drain_job_streams(shared_);
    health_ = {};
    server_->GetHealthCheckService()->SetServingStatus(false);
    const auto left = until - std::chrono::steady_clock::now();
    server_->Shutdown(std::chrono::system_clock::now() + left);
  }

  [[nodiscard]] Counters counters() const override {
    const Listener::Counters listener = listener_->counters();
    const std::lock_guard lock{shared_.mutex};
    return {.calls = shared_.calls,
            .streams = shared_.streams.size(),
            .connections = listener.connections,
            .refused_connections = listener.refused};
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
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::Server> server_;
  std::jthread health_;  // after the server, which it tells
};

}  // namespace

Expected<std::unique_ptr<RpcServer>> RpcServer::start(RpcServerOptions options, service::Service& service,
                                                      const service::Authenticator& authenticator) {
  auto server = std::make_unique<RunningRpcServer>(std::move(options), service, authenticator);
  if (auto problem = server->listen()) return std::unexpected(std::move(*problem));
  return server;
}

}  // namespace faultline::rpc
