#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "faultline/error.h"

namespace faultline {

struct MigrateOptions {
  std::string database;  ///< a PostgreSQL URL or keyword string, of a login that may make a schema
  /// How many buckets a new schema gets. Fixed from then on: 1 on a single server, 64 or more on a cluster.
  int buckets = 1;
  /// How long one migration may wait for a table that others use, before it steps back and tries again:
  /// a migration that queues for a lock makes everybody after it wait.
  std::chrono::milliseconds lock_timeout{2'000};
  /// How long all of it may take; an index on a large table takes its time.
  std::chrono::milliseconds timeout{std::chrono::hours{1}};
};

struct MigrateReport {
  int version_before = 0;  ///< 0: there was no schema
  int version_after = 0;
  std::vector<std::string> applied;    ///< the names of the migrations that were applied now
  std::size_t functions_replaced = 0;  ///< made, or given this library's body
};

/// Makes the schema `faultline` in a database, or brings it to the version that this library speaks, as
/// `faultline migrate` does. Where there is nothing to do it changes nothing, so a program may call it each
/// time it starts; of several that do so at once one works, and the others wait and find it done. Programs
/// that run meanwhile go on.
///
/// `wrong_schema` for one that is newer and no longer serves this library, or was changed by somebody else;
/// `permission_denied` for a login that may not make it: an administrator runs it once, and the program's own
/// login is then made a member of `faultline_producer` or `faultline_worker`.
[[nodiscard]] Expected<MigrateReport> migrate(const MigrateOptions& options);

}  // namespace faultline
