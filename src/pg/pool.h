#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <random>
#include <vector>

#include "base/interrupt.h"
#include "pg/backoff.h"
#include "pg/connection.h"

namespace faultline::pg {

/// A fixed number of connections, opened on demand, with one more reserved for heartbeats so that
/// a busy pool can never cost a worker its leases. Thread-safe. Outlives what it lends.
class Pool {
 public:
  struct Options {
    ConnectOptions connect;
    std::size_t connections_max = 4;
    /// While the server cannot be reached, one caller at a time tries for all, with waits that grow from
    /// `backoff_min` to `backoff_max`, with full jitter. It is over when the first one gets through.
    std::chrono::milliseconds backoff_min{50};
    std::chrono::milliseconds backoff_max{500};
    /// Of the jitter; drawn from the operating system when absent.
    std::optional<std::mt19937::result_type> jitter_seed{};
  };
  enum class Partition { general, heartbeat };

  explicit Pool(Options options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// A connection for the caller's use; returned to the pool by Borrowed's destructor, closed if broken
  /// or left inside a transaction or a statement. Connects and reconnects (with jitter) until `deadline`; an
  /// error that waiting cannot cure, such as a wrong password, is returned at once.
  class Borrowed;
  [[nodiscard]] Expected<Borrowed> acquire(Deadline deadline, Partition partition = Partition::general);

  /// Whoever waits for the server or for a connection, now or later, has reached his deadline.
  void give_up();

 private:
  /// Connections that only this partition's callers use. `open` counts idle, lent and connecting ones.
  struct Reserve {
    std::size_t limit = 0;
    std::size_t open = 0;
    std::vector<Connection> idle;
    std::condition_variable changed;
  };

  [[nodiscard]] Reserve& reserve(Partition partition) {
    return partition == Partition::heartbeat ? heartbeat_ : general_;
  }
  /// An idle connection, or none and with it the right to open one.
  [[nodiscard]] Expected<std::optional<Connection>> take(Reserve& reserve, Deadline deadline);
  [[nodiscard]] Expected<Connection> connect(Reserve& reserve, Deadline deadline);
  void give_back(Partition partition, Connection connection) noexcept;
  void give_up_slot(Reserve& reserve) noexcept;
  /// Nobody needs to wait any longer before he tries to connect.
  void server_answers();

  Interrupt interrupt_;
  const Options options_;
  std::mutex mutex_;  // guards all below
  std::mt19937 seeds_;
  std::optional<Backoff> backoff_{};  // while the server cannot be reached, as the next two
  std::optional<Error> last_error_{};
  Deadline next_try_{};
  bool given_up_ = false;
  Reserve general_;
  Reserve heartbeat_;
};

class Pool::Borrowed {
 public:
  Borrowed(Borrowed&& other) noexcept;
  Borrowed& operator=(Borrowed&& other) noexcept;
  ~Borrowed();

  [[nodiscard]] Connection& operator*() { return *connection_; }
  [[nodiscard]] Connection* operator->() { return &*connection_; }

 private:
  friend class Pool;
  Borrowed(Pool& pool, Partition partition, Connection connection)
      : pool_(&pool), partition_(partition), connection_(std::move(connection)) {}
  void release() noexcept;

  Pool* pool_;
  Partition partition_;
  std::optional<Connection> connection_;
};

}  // namespace faultline::pg
