#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pg/connection.h"

namespace faultline::schema {

/// The same server, another database. `database` is a plain identifier.
[[nodiscard]] std::string dsn_with_database(std::string dsn, std::string_view database);

/// Databases that a drill or a benchmark makes on a server for itself, with Faultline's schema in them, so
/// that no database of the user's is ever touched. They are dropped with this object, or by `drop_all`; those
/// of a process that was killed are dropped by the next one of its kind.
///
/// How an owner is seen to be alive: as long as it lives a session of this server has its name as
/// application name, and its databases have it as the first part of theirs.
///
/// Thread-safe. Throws std::runtime_error.
class ScratchDatabases {
 public:
  /// `dsn` names a database of the server, which is only connected to. `kind` is a word for the names: the
  /// databases are called `faultline_<kind>_`, twelve hexadecimal digits, `_` and a number.
  ScratchDatabases(std::string dsn, std::string_view kind);
  ScratchDatabases(const ScratchDatabases&) = delete;
  ScratchDatabases& operator=(const ScratchDatabases&) = delete;
  ~ScratchDatabases();  ///< as `drop_all`, silently

  /// Makes one more, migrated, and returns its DSN.
  [[nodiscard]] std::string create();
  /// From any thread: drops all of them, under whoever still uses them. None can be made afterwards.
  void drop_all();

 private:
  void drop_orphans();

  const std::string dsn_;
  const std::string prefix_;  ///< of all databases of this kind
  const std::string name_;    ///< the owner's, and the beginning of its databases' names
  std::mutex mutex_;          // guards all below
  pg::Connection keeper_;
  std::vector<std::string> databases_;
  bool closed_ = false;
};

}  // namespace faultline::schema
