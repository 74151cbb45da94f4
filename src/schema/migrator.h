#pragma once

#include <chrono>
#include <expected>
#include <string>
#include <vector>

#include "faultline/error.h"
#include "faultline/time.h"
#include "pg/connection.h"

namespace faultline::schema {

struct MigrateOptions {
  /// Report what would be applied, with its SQL, and change nothing.
  bool dry_run = false;
  /// How many buckets a new schema gets. Fixed from then on: 1 on a single server, 64 or more on a cluster.
  int buckets = 1;
  /// How long one migration may wait for a table that others use, before it steps back and tries again:
  /// a migration that queues for a lock makes everybody after it wait.
  std::chrono::milliseconds lock_timeout{2'000};
};

struct AppliedMigration {
  int version = 0;
  std::string name;
};

struct MigrateReport {
  int version_before = 0;
  int version_after = 0;
  std::vector<AppliedMigration> applied;
  std::size_t functions_replaced = 0;  ///< made, or given this program's body
  std::string sql;                     ///< of a dry run: what it would execute
};

struct MigrateError {
  enum class Code {
    newer_schema,       ///< the database is newer than this program and no longer serves it
    older_schema,       ///< the database is older than this program and was not to be changed
    foreign_schema,     ///< a migration was applied that differs from this program's
    usage,              ///< invalid options
    permission_denied,  ///< this login may not do it
    database,           ///< the database said no
  };
  Code code = Code::database;
  std::string message;
  std::string hint;

  [[nodiscard]] std::string describe() const { return hint.empty() ? message : message + ": " + hint; }
};

/// As callers of the public API react to it.
[[nodiscard]] Error to_error(MigrateError error);

/// The version that this program speaks.
[[nodiscard]] int version_of_program();

/// Brings the database to the version of this program, each migration in a transaction of its own.
/// Any number of migrators may run at the same time: one works, the others wait and find it done. Then the
/// functions get this program's bodies, those that have another text, all in one transaction; programs that
/// run meanwhile call the old ones until then. A newer schema that still serves this program is left as it
/// is.
[[nodiscard]] std::expected<MigrateReport, MigrateError> migrate(pg::Connection& connection,
                                                                 const MigrateOptions& options,
                                                                 Deadline deadline);

/// Refuses a database whose schema is older than this program, or newer and no longer serves it
/// (`meta.speaks_from`), or lacks a function that this program calls, and says what to do. Returns the
/// schema's version.
[[nodiscard]] std::expected<int, MigrateError> check(pg::Connection& connection, Deadline deadline);

}  // namespace faultline::schema
