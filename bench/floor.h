#pragma once

#include <cstddef>
#include <vector>

#include "workload.h"

namespace faultline::bench {

/// The floor: what plain SQL costs for the least that a fenced queue does. One table of jobs with a lease
/// and a token per row, one index to claim by, one ledger row per finished job without its payload. No
/// queues, priorities, retries, cancellation, caps, counts, evidence, nor any way to find an expired lease.
/// It goes through the same libpq layer, in batches, with prepared statements and the same plan settings.
class Floor {
 public:
  explicit Floor(Server& server);

  void fill(std::size_t jobs);
  /// Jobs per second of claim and settle, each a commit of its own.
  [[nodiscard]] double drain(std::size_t connections, std::size_t batch);

 private:
  Server& server_;
};

/// The settings that the store's connections have, so that the floor's plans are as steady as ours.
[[nodiscard]] pg::Connection connect_planned(const Server& server);

}  // namespace faultline::bench
