#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <grpcpp/grpcpp.h>

#include "faultline/v1/faultline.grpc.pb.h"
#include "remote/remote_link.h"
#include "remote/server_address.h"
#include "wire/convert.h"
#include "worker/link.h"

namespace faultline::remote {

namespace pb = wire::pb;
using worker::Clock;

/// A call that did not give what was asked for.
struct Failed {
  Error error;
  pb::Failure failure{};   ///< the server's own words; empty if it said none
  bool answered = false;   ///< by the server: nothing happened, unless the code is `outcome_unknown`
  bool elsewhere = false;  ///< another connection, or another server, may do better
};
[[nodiscard]] Failed failed(const grpc::Status& status, const std::string& target);

/// A connection to one server.
class ServerConnection {
 public:
  ServerConnection(std::string target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                   const std::string& api_key);

  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] pb::Faultline::Stub& stub() { return *stub_; }
  void authorize(grpc::ClientContext& context) const;
  [[nodiscard]] bool is_ready() const;
  /// Nothing, or why a call would not reach the server.
  [[nodiscard]] std::optional<Error> wait_until_ready(Clock::time_point until) const;

 private:
  std::string target_;
  std::string authorization_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<pb::Faultline::Stub> stub_;
};

/// The connection that is used now. Thread-safe.
class ServerConnections {
 public:
  [[nodiscard]] static Expected<std::unique_ptr<ServerConnections>> open(const RemoteLinkOptions& options);

  [[nodiscard]] std::shared_ptr<ServerConnection> current() const;
  /// This one is not good any more: there is another, to the next server if there are several. Calls that are
  /// under way go on.
  void leave(const std::shared_ptr<ServerConnection>& connection);
  /// Called, under no lock, when there is another. Set before there are calls.
  std::function<void()> on_change;

  ServerConnections(ServerAddress address, std::shared_ptr<grpc::ChannelCredentials> credentials,
                    std::string api_key);

  using Call = std::function<grpc::Status(pb::Faultline::Stub&, grpc::ClientContext&)>;
  /// Makes a call, and leaves the connection if it was to blame.
  [[nodiscard]] std::expected<void, Failed> call(std::chrono::milliseconds timeout, const Call& call);
  /// Calls that are under way, and later ones, fail at once.
  void give_up();
  [[nodiscard]] bool given_up() const;

 private:
  [[nodiscard]] std::shared_ptr<ServerConnection> connect() const;

  const ServerAddress address_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  const std::string api_key_;
  mutable std::mutex mutex_;  // guards all below
  std::size_t at_ = 0;
  std::shared_ptr<ServerConnection> current_;
  bool given_up_ = false;
  std::set<grpc::ClientContext*> under_way_;
};

}  // namespace faultline::remote
