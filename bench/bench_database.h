#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "pg/connection.h"
#include "private_pg/private_postgres.h"
#include "schema/scratch_databases.h"

namespace faultline::bench {

/// Where a benchmark runs: a database with the schema in it, made for the benchmark and gone at its end.
///
/// Without `beside` it is on a durable PostgreSQL of the benchmark's own, in a temporary directory. Else it
/// is a scratch database on the server that `beside` names a database of; that database is only connected to.
/// Throws std::runtime_error.
class BenchDatabase {
 public:
  /// When `stop` fires, in whichever thread, everything is taken down at once, under whoever uses it.
  explicit BenchDatabase(const std::optional<std::string>& beside = std::nullopt,
                         const std::stop_token& stop = {});
  ~BenchDatabase();
  BenchDatabase(const BenchDatabase&) = delete;
  BenchDatabase& operator=(const BenchDatabase&) = delete;

  [[nodiscard]] const std::string& dsn() const { return dsn_; }
  /// One more database with the schema in it.
  [[nodiscard]] std::string make_database();
  [[nodiscard]] pg::Connection connect() const;
  /// On a connection that is kept for this.
  void script(const std::string& sql);

  /// Forgets finished jobs, and leaves the tables of jobs as tidy as a quiet night would.
  void clear();

 private:
  [[nodiscard]] std::string start_own(const std::stop_token& stop);
  void open_databases(const std::string& beside);
  void take_down() noexcept;

  std::string dsn_;
  std::optional<pg::Connection> admin_;
  std::mutex mutex_;  // guards what follows
  std::filesystem::path directory_;
  std::optional<PrivatePostgres> own_;
  std::optional<schema::ScratchDatabases> databases_;
  bool down_ = false;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace faultline::bench
