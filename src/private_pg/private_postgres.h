#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "private_pg/error.h"

namespace faultline {

/// $XDG_STATE_HOME/faultline, else ~/.local/state/faultline. For root without XDG_STATE_HOME it is
/// /var/lib/faultline: root's home is closed to the unprivileged user that the server runs as.
[[nodiscard]] std::filesystem::path default_data_dir();

struct PrivatePostgresOptions {
  std::filesystem::path data_dir = default_data_dir();
  std::string database = "faultline";  ///< made if it is missing
  /// False only for tests: what was committed may be lost when the machine (not the server) crashes.
  bool durable = true;
  /// The server goes on after its last user has left, until `stop_server`.
  bool keep_running = false;
  /// More server settings, for a server that is started here; one that runs already keeps its own.
  std::vector<std::pair<std::string, std::string>> settings;
  std::chrono::milliseconds start_timeout{60'000};
  /// Ends a start early; see PrivatePostgresErrc::interrupted.
  std::stop_token stop;
};

/// One process's use of a PostgreSQL server of Faultline's own, which needs no administration: it is found,
/// made, started, shared and stopped by whoever uses the data directory.
///
/// How it works:
/// 1. Every user holds `users.lock` shared. The kernel drops it when the user dies, even by kill -9.
/// 2. Starting and stopping happen under `start.lock`, so two processes that start at the same moment
///    get one server, and nobody adopts a server that is about to be stopped.
/// 3. The server is no child of its starter: it outlives a killed starter, and the next user adopts it.
/// 4. Whoever leaves and can make its `users.lock` exclusive was the last, and stops the server.
/// 5. The server listens on a unix socket only, in a directory that only the server's user can enter.
///
/// Thread-safe as a value is: one thread at a time. The processes that use one data directory belong to
/// one operating system user.
class PrivatePostgres {
 public:
  /// Returns when the server accepts connections and the database exists.
  [[nodiscard]] static std::expected<PrivatePostgres, PrivatePostgresError> start(
      const PrivatePostgresOptions& options);

  PrivatePostgres(PrivatePostgres&&) noexcept;
  PrivatePostgres& operator=(PrivatePostgres&&) noexcept;
  ~PrivatePostgres();  ///< as `stop`, silently

  /// A libpq URL of the database, as the server's superuser.
  [[nodiscard]] const std::string& dsn() const;
  /// The same for another database of this server.
  [[nodiscard]] std::string dsn_for(std::string_view database) const;
  /// The server was not running before `start`.
  [[nodiscard]] bool started_here() const;
  /// 0 when the server is not running any more.
  [[nodiscard]] pid_t postmaster_pid() const;

  /// Starts the server again if it has died. The dsn stays the same.
  [[nodiscard]] std::expected<void, PrivatePostgresError> ensure_running();

  /// The server runs from a program that is not the one on disk any more: an upgrade has replaced it.
  [[nodiscard]] bool files_replaced() const;
  /// Stops the server, whoever else uses it, and starts it again from what is on disk. Running transactions
  /// are rolled back. The dsn stays the same.
  [[nodiscard]] std::expected<void, PrivatePostgresError> renew();

  enum class StopOutcome {
    stopped,
    still_used,    ///< other processes use it; the last of them stops it
    kept_running,  ///< it was asked to outlive its users
    not_running,
  };
  /// Leaves, and stops the server if nobody else uses it. Running transactions are rolled back.
  std::expected<StopOutcome, PrivatePostgresError> stop();

  struct Status {
    bool running = false;
    bool keep_running = false;
    pid_t postmaster_pid = 0;
    std::filesystem::path data_dir;
    std::string dsn;  ///< empty when not running
  };
  /// Looks, and changes nothing.
  [[nodiscard]] static std::expected<Status, PrivatePostgresError> inspect(
      const PrivatePostgresOptions& options);
  /// Takes back `keep_running`, and stops the server if nobody uses it.
  [[nodiscard]] static std::expected<StopOutcome, PrivatePostgresError> stop_server(
      const PrivatePostgresOptions& options);

 private:
  class Impl;
  explicit PrivatePostgres(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline
