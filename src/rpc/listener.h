#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/interrupt.h"
#include "faultline/error.h"
#include "faultline/event.h"

namespace grpc::experimental {
class ExternalConnectionAcceptor;
}

namespace faultline::rpc {

struct ListenerOptions {
  std::string host{};
  std::uint16_t port = 0;  ///< 0: any free one
  std::size_t connections_max = 0;
  EventSink log{};  ///< required
};

/// Accepts connections in gRPC's place, which has no limit of them, and which never accepts again once the
/// process was out of descriptors. At the limit, who has not made a call that was admitted makes room for the
/// next: the longest connected of them is cut. So is who sends more than gRPC answers: streams that a client
/// opens and resets at once stay in memory as long as they come faster than gRPC finds time to write, and
/// gRPC has no limit of them either. Thread-safe.
class Listener {
 public:
  /// Bound, but nobody is accepted yet.
  [[nodiscard]] static Expected<std::unique_ptr<Listener>> bind(ListenerOptions options);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener();

  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Hands connections to it from now on, until `stop`.
  void start(std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor);
  void stop();

  /// A call of this peer, as gRPC names it, was admitted.
  void admitted(const std::string& peer);

  struct Counters {
    std::size_t connections = 0;
    std::uint64_t refused = 0;  ///< turned away, or cut to make room
  };
  [[nodiscard]] Counters counters();

 private:
  /// gRPC owns the descriptor and closes it unasked; then its number may soon be somebody else's. The socket
  /// that it was is known by its cookie, which the system never gives twice.
  struct Connection {
    int fd = -1;
    std::uint64_t cookie = 0;
    std::uint64_t number = 0;  ///< in the order of their coming
    bool admitted = false;
    bool cut = false;            ///< gRPC has not closed it yet
    std::uint64_t sent = 0;      ///< by us, at the last look
    std::uint64_t answered = 0;  ///< what had come when we sent that

    [[nodiscard]] bool open() const;
    void reset() const;
  };

  enum class Room { some, soon, none };

  Listener(ListenerOptions options, int socket);
  void run();
  /// False: try again in a moment.
  [[nodiscard]] bool accept_one();
  /// None: all have a right to be here.
  [[nodiscard]] Room make_room();
  void forget_closed();
  /// False: there is nobody to look at.
  bool cut_floods();
  void tell_cut(std::size_t connections);

  const ListenerOptions options_;
  const int socket_;
  const std::uint16_t port_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  Interrupt stop_;

  std::mutex mutex_;                                         // guards all below
  std::unordered_map<std::string, Connection> connections_;  // by peer
  std::uint64_t accepted_ = 0;
  std::uint64_t refused_ = 0;
  std::size_t untold_ = 0;  // connections that were cut
  std::chrono::steady_clock::time_point tell_from_{};

  std::jthread thread_;
};

}  // namespace faultline::rpc
