#pragma once

#include "pg/connection.h"

namespace faultline::pg {

/// A fixed number of connections, opened on demand, with one more reserved for heartbeats so that
/// a busy pool can never cost a worker its leases. Thread-safe.
class Pool {
 public:
  struct Options {
    ConnectOptions connect;
    std::size_t connections_max = 4;
    /// Waits between attempts to connect grow from `backoff_min` to `backoff_max`, with full jitter.
    std::chrono::milliseconds backoff_min{50};
    std::chrono::milliseconds backoff_max{5'000};
  };
  enum class Lane { general, heartbeat };

  explicit Pool(Options options);

  /// A connection for the caller's use; returned to the pool by Lease's destructor, closed if broken
  /// or left inside a transaction. Connects and reconnects (with jitter) until `deadline`.
  class Borrowed;
  [[nodiscard]] Expected<Borrowed> acquire(Deadline deadline, Lane lane = Lane::general);
};

}  // namespace faultline::pg
