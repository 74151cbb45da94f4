#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/line_limit.h"
#include "http/http_server.h"
#include "http/message.h"
#include "http/router.h"
#include "http/transport.h"

namespace faultline::http {

/// Brings work to the thread of a connection. Thread-safe, and outlives the thread.
class Mailbox {
 public:
  using Work = std::move_only_function<void(bool here)>;
  virtual ~Mailbox() = default;
  /// Calls `work(true)` on that thread later, or `work(false)` at once if it has ended.
  virtual void post(Work work) = 0;
};

/// One client. All of it runs on one thread.
class HttpConnection {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~HttpConnection() = default;
  virtual void start() = 0;
  /// Now and then: ends what has taken too long.
  virtual void tick(Clock::time_point now) = 0;
  /// Closes it, at once if nothing is under way.
  virtual void drain() = 0;
  virtual void close() = 0;
  /// Closes it if it still waits for a request.
  virtual void close_if_idle() = 0;
};

/// Connections that wait for a request, and so may be closed to make room for another. Thread-safe.
class IdleConnections {
 public:
  using Place = std::uint64_t;
  struct Waiting {
    std::weak_ptr<HttpConnection> connection;
    std::shared_ptr<Mailbox> mailbox;
  };
  /// From now on. `known`: a call of it was admitted.
  [[nodiscard]] Place enter(Waiting waiting, bool known) {
    const std::lock_guard lock{mutex_};
    (known ? known_ : unknown_).emplace(++last_, std::move(waiting));
    return last_;
  }
  void leave(Place place) {
    const std::lock_guard lock{mutex_};
    if (unknown_.erase(place) == 0) known_.erase(place);
  }
  /// Soon, the one that waits longest, of those that nobody knows first. False: all have a request.
  [[nodiscard]] bool close_longest() {
    auto waiting = take_longest();
    if (!waiting) return false;
    waiting->mailbox->post([connection = std::move(waiting->connection)](bool here) {
      if (const auto alive = here ? connection.lock() : nullptr) alive->close_if_idle();
    });
    return true;
  }

 private:
  std::optional<Waiting> take_longest() {
    const std::lock_guard lock{mutex_};
    for (auto* const places : {&unknown_, &known_}) {
      if (!places->empty()) return std::move(places->extract(places->begin()).mapped());
    }
    return std::nullopt;
  }

  std::mutex mutex_;  // guards all below
  Place last_ = 0;
  std::map<Place, Waiting> unknown_;
  std::map<Place, Waiting> known_;
};

/// What all connections of a server share. Outlived by none of them.
struct SharedState {
  HttpServerOptions options;
  Router router;
  std::atomic<std::uint64_t> requests = 0;
  std::atomic<std::uint64_t> refused_connections = 0;
  std::atomic<std::uint64_t> timeouts = 0;
  std::atomic<std::size_t> connections = 0;
  std::atomic<std::size_t> body_bytes = 0;  ///< of large bodies that are being read; see `body_bytes_max`
  std::atomic<bool> draining = false;
  LineLimit failures;
  LineLimit refusals;
  IdleConnections idle;

  /// So that many large bodies at once cannot use up the memory.
  [[nodiscard]] std::size_t body_bytes_max() const { return options.body_max * 8; }
};

/// `closed` is called once, when it has let go of its socket.
[[nodiscard]] std::shared_ptr<HttpConnection> make_connection(std::unique_ptr<Transport> transport,
                                                              SharedState& shared,
                                                              std::shared_ptr<Mailbox> mailbox,
                                                              std::move_only_function<void()> closed);

}  // namespace faultline::http
