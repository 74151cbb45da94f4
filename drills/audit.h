#pragma once

#include <cstdint>

#include "drills/history.h"
#include "pg/connection.h"

namespace faultline::drills {

/// Reads all that the tables say of a job, without the store. Throws DrillError.
[[nodiscard]] Findings read_findings(pg::Connection& connection, JobId job);

/// What all tables of a scratch database hold in the end.
struct DatabaseTotals {
  std::int64_t succeeded = 0;  ///< ledger rows
  std::int64_t live = 0;       ///< jobs that have not ended
  std::int64_t evidence = 0;   ///< rows of stale_writes

  DatabaseTotals& operator+=(const DatabaseTotals& other);
  friend bool operator==(const DatabaseTotals&, const DatabaseTotals&) = default;
};
[[nodiscard]] DatabaseTotals read_totals(pg::Connection& connection);

}  // namespace faultline::drills
