#include "remote/server_connections.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "wire/failure.h"

namespace faultline::remote {
namespace {

/// What the server permits, and soon enough to notice that it is gone before most leases are.
constexpr int kKeepaliveMs = 30'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
/// How long a call waits for the connection. A server that refuses it is noticed at once.
constexpr std::chrono::seconds kConnectMax{3};

Expected<std::string> read_file(const char* option, const std::string& path) {
  if (path.empty()) return std::string{};
  std::ifstream in{path, std::ios::binary};
  std::ostringstream text;
  if (in) text << in.rdbuf();
  if (!in || text.str().empty()) {
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = std::string{option} + ": cannot read \"" + path + "\"",
                                 .hint = "it is a PEM file that this process may read"});
  }
  return text.str();
}

Error invalid(std::string message, std::string hint) {
  return {.code = ErrorCode::invalid_argument, .message = std::move(message), .hint = std::move(hint)};
}

Expected<std::shared_ptr<grpc::ChannelCredentials>> credentials(const RemoteLinkOptions& options,
                                                                const ServerAddress& address) {
  const bool any_tls = !options.tls_ca.empty() || !options.tls_cert.empty() || !options.tls_key.empty();
  if (!address.tls) {
    if (any_tls)
      return std::unexpected(invalid("there are TLS files for a server that is reached in the clear",
                                     "write faultline+tls:// instead of faultline://"));
    return grpc::InsecureChannelCredentials();
  }
  if (options.tls_cert.empty() != options.tls_key.empty())
    return std::unexpected(invalid("tls_cert and tls_key belong together", "set both, or none"));
  auto roots = read_file("tls_ca", options.tls_ca);
  if (!roots) return std::unexpected(std::move(roots.error()));
  auto certificate = read_file("tls_cert", options.tls_cert);
  if (!certificate) return std::unexpected(std::move(certificate.error()));
  auto key = read_file("tls_key", options.tls_key);
  if (!key) return std::unexpected(std::move(key.error()));
  grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = std::move(*roots);
  ssl.pem_cert_chain = std::move(*certificate);
  ssl.pem_private_key = std::move(*key);
  return grpc::SslCredentials(ssl);
}

std::string key_of(const RemoteLinkOptions& options) {
  if (!options.api_key.empty()) return options.api_key;
  const char* set = std::getenv("FAULTLINE_API_KEY");
  return set != nullptr ? set : "";
}

grpc::ChannelArguments arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5'000);
  // A new channel is a new connection, which a load balancer may lead elsewhere.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The server decides how much it sends at a time.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  return arguments;
}

ErrorCode code_of(const pb::Failure& failure) {
  const std::string& code = failure.code();
  if (code == "malformed" || code == "invalid") return ErrorCode::invalid_argument;
  if (code == "conflict") return ErrorCode::conflict;
  if (code == "too_large") return ErrorCode::payload_too_large;
  if (code == "unauthenticated" || code == "forbidden") return ErrorCode::permission_denied;
  if (code == "not_found") return ErrorCode::unknown_queue;
  if (code == "overloaded" || code == "unavailable") return ErrorCode::unavailable;
  if (code == "outcome_unknown") return ErrorCode::outcome_unknown;
  return ErrorCode::internal;
}

Error gave_up() {
  return {.code = ErrorCode::unavailable,
          .message = "the worker ends, and waits for its server no longer",
          .hint = "nothing happened"};
}

}  // namespace

Failed failed(const grpc::Status& status, const std::string& target) {
  if (auto failure = wire::failure_of(status.error_details())) {
    return {.error = {.code = code_of(*failure), .message = status.error_message(), .hint = failure->hint()},
            .failure = std::move(*failure),
            .answered = true,
            .elsewhere = status.error_code() == grpc::StatusCode::UNAVAILABLE};
  }
  // gRPC itself says so, or something between here and there.
  Failed failed{.error = {.code = ErrorCode::unavailable,
                          .message = "the server at " + target + ": " + status.error_message(),
                          .hint = "is it running, and is this its gRPC address?"}};
  switch (status.error_code()) {
    case grpc::StatusCode::UNIMPLEMENTED:
      failed.answered = true;
      failed.error.code = ErrorCode::internal;
      failed.error.hint = "the server is of another version, or this is not its gRPC address";
      break;
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
      failed.answered = true;
      failed.error.code = ErrorCode::permission_denied;
      failed.error.hint = "check the key, or the client certificate";
      break;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      failed.elsewhere = true;
      break;
    default:
      break;
  }
  return failed;
}

ServerConnection::ServerConnection(std::string target,
                                   const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                   const std::string& api_key)
    : target_(std::move(target)),
      authorization_(api_key.empty() ? "" : "Bearer " + api_key),
      channel_(grpc::CreateCustomChannel(target_, credentials, arguments())),
      stub_(pb::Faultline::NewStub(channel_)) {}

void ServerConnection::authorize(grpc::ClientContext& context) const {
  if (!authorization_.empty()) context.AddMetadata("authorization", authorization_);
}

bool ServerConnection::is_ready() const {
  return channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
}

std::optional<Error> ServerConnection::wait_until_ready(Clock::time_point until) const {
  const auto deadline = std::chrono::system_clock::now() + (until - Clock::now());
  for (;;) {
    const grpc_connectivity_state state = channel_->GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return std::nullopt;
    const bool waited = state != GRPC_CHANNEL_TRANSIENT_FAILURE && state != GRPC_CHANNEL_SHUTDOWN &&
                        channel_->WaitForStateChange(state, deadline);
    if (!waited)
      return Error{.code = ErrorCode::unavailable,
                   .message = "the server at " + target_ + " cannot be reached",
                   .hint = "is it running, and is this its gRPC address? nothing happened; try again"};
  }
}

ServerConnections::ServerConnections(ServerAddress address,
                                     std::shared_ptr<grpc::ChannelCredentials> credentials,
                                     std::string api_key)
    : address_(std::move(address)),
      credentials_(std::move(credentials)),
      api_key_(std::move(api_key)),
      current_(connect()) {}

Expected<std::unique_ptr<ServerConnections>> ServerConnections::open(const RemoteLinkOptions& options) {
  auto address = parse_server_address(options.server);
  if (!address) return std::unexpected(std::move(address.error()));
  std::string key = key_of(options);
  if (!key.empty() && !address->tls && !address->insecure && !address->is_loopback()) {
    return std::unexpected(
        invalid("the API key would cross the network in the clear",
                "write faultline+tls://, or faultline://…?insecure=true on a network that you trust"));
  }
  auto made = credentials(options, *address);
  if (!made) return std::unexpected(std::move(made.error()));
  return std::make_unique<ServerConnections>(std::move(*address), std::move(*made), std::move(key));
}

std::shared_ptr<ServerConnection> ServerConnections::connect() const {
  return std::make_shared<ServerConnection>(address_.targets[at_].to_string(), credentials_, api_key_);
}

std::shared_ptr<ServerConnection> ServerConnections::current() const {
  const std::lock_guard lock{mutex_};
  return current_;
}

void ServerConnections::leave(const std::shared_ptr<ServerConnection>& connection) {
  {
    const std::lock_guard lock{mutex_};
    if (current_ != connection) return;
    at_ = (at_ + 1) % address_.targets.size();
    current_ = connect();
  }
  if (on_change) on_change();
}

void ServerConnections::give_up() {
  const std::lock_guard lock{mutex_};
  given_up_ = true;
  for (grpc::ClientContext* context : under_way_) context->TryCancel();
}

bool ServerConnections::given_up() const {
  const std::lock_guard lock{mutex_};
  return given_up_;
}

std::expected<void, Failed> ServerConnections::call(std::chrono::milliseconds timeout, const Call& call) {
  const std::shared_ptr<ServerConnection> connection = current();
  const Clock::time_point until = Clock::now() + timeout;
  if (given_up()) return std::unexpected(Failed{.error = gave_up(), .answered = true});
  if (auto problem = connection->wait_until_ready(std::min(until, Clock::now() + kConnectMax))) {
    leave(connection);
    return std::unexpected(Failed{.error = std::move(*problem), .answered = true});
  }
  grpc::ClientContext context;
  connection->authorize(context);
  context.set_deadline(std::chrono::system_clock::now() + (until - Clock::now()));
  {
    const std::lock_guard lock{mutex_};
    if (given_up_) return std::unexpected(Failed{.error = gave_up(), .answered = true});
    under_way_.insert(&context);
  }
  const grpc::Status status = call(connection->stub(), context);
  {
    const std::lock_guard lock{mutex_};
    under_way_.erase(&context);
  }
  if (status.ok()) return {};
  Failed why = failed(status, connection->target());
  if (why.elsewhere) leave(connection);
  return std::unexpected(std::move(why));
}

}  // namespace faultline::remote
