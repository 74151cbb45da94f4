#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/time.h"
#include "pg/connection.h"

namespace faultline::audit {

/// The jobs that one worker runs.
struct WorkerLeases {
  std::string worker;
  std::int64_t running = 0;
  std::vector<std::string> queues;
  DatabaseTime oldest_claim;
  DatabaseTime first_expiry;  ///< of the lease that runs out first; in the past if no watchdog has come
};

/// Who runs what now, the worker whose lease runs out first in front; up to `workers_max` per bucket.
[[nodiscard]] Expected<std::vector<WorkerLeases>> leases_by_worker(pg::Connection& connection,
                                                                   std::size_t workers_max, Deadline until);

}  // namespace faultline::audit
