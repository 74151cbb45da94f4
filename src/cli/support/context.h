#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cli/support/output.h"
#include "faultline/store.h"
#include "faultline/time.h"
#include "pg/connection.h"
#include "private_pg/private_postgres.h"

namespace faultline::cli {

/// The options that every subcommand takes.
struct GlobalOptions {
  std::string database;  ///< --database; empty when not given
  std::string data_dir;  ///< --data-dir; empty when not given
  bool json = false;
  /// What follows `--exec PROGRAM`: the arguments of that program, whatever they look like.
  std::vector<std::string> program_arguments{};
};

/// What a subcommand works with: the database that the options, the environment or the file of settings name,
/// or else the private PostgreSQL, if it runs. Few commands start it: an operator who forgot to name the
/// database is not to be told of an empty one.
class Context {
 public:
  explicit Context(GlobalOptions options) : options_(std::move(options)) {}

  [[nodiscard]] const GlobalOptions& options() const { return options_; }
  /// The data directory of the private PostgreSQL, and that a signal ends the wait for it.
  [[nodiscard]] PrivatePostgresOptions private_postgres_options() const;

  /// The database that somebody named; empty: nobody did.
  [[nodiscard]] Expected<std::string> named_database() const;
  /// --database, else what `serve` would be told (FAULTLINE_DATABASE, DATABASE_URL, FAULTLINE_CONFIG's file),
  /// else the URL of the private PostgreSQL.
  [[nodiscard]] Expected<std::string> database_url();
  /// From now on `database_url` starts the private PostgreSQL where it does not run, and makes it where there
  /// is none.
  void may_start_private_postgres() { may_start_ = true; }
  /// How to speak of the database, without passwords; after `database_url`.
  [[nodiscard]] std::string database_name() const;
  [[nodiscard]] Expected<pg::Connection> connect();
  /// Runs the private PostgreSQL until this process, or with `keep_running` also after it, ends.
  [[nodiscard]] Expected<std::string> start_private_postgres(bool keep_running);
  [[nodiscard]] Expected<pg::Connection> connect_to(const std::string& url);
  /// The store of that database. The private PostgreSQL is migrated on the way; another one is refused when
  /// its schema is not current, with the command that changes it.
  [[nodiscard]] Expected<Store> open_store(
      std::chrono::milliseconds call_timeout = StoreOptions{}.call_timeout);

  /// Whether the database is the private PostgreSQL: nothing else was named. After `database_url`.
  [[nodiscard]] bool uses_private_postgres() const { return named_.empty(); }

  /// The private PostgreSQL was started or found by this process, which has not left it.
  [[nodiscard]] bool holds_private_postgres();
  /// It is held, and does not run any more.
  [[nodiscard]] bool private_postgres_died();
  /// Starts it again, if nobody else has by then. Its URL stays the same.
  [[nodiscard]] Expected<void> restart_private_postgres();
  /// An upgrade has replaced the files that it runs from.
  [[nodiscard]] bool private_postgres_replaced();
  /// Starts it anew from the files that are there now.
  [[nodiscard]] Expected<void> renew_private_postgres();

  /// Leaves the private PostgreSQL; the last to leave stops it.
  [[nodiscard]] Expected<void> close();
  /// From now on signals are the command's own matter: each calls this, and the process goes on. For one that
  /// ends gracefully.
  void on_signal(std::function<void()> handler);
  /// From the signal's thread, while a command may be running: ends its wait or its connection. True: the
  /// process is to end by the signal.
  [[nodiscard]] bool interrupt();
  /// Asked to stop by `interrupt`, before the private PostgreSQL is left.
  [[nodiscard]] std::stop_token stop_token() const { return stop_.get_token(); }
  [[nodiscard]] bool interrupted() const { return stop_.stop_requested(); }

 private:
  GlobalOptions options_;
  bool may_start_ = false;
  std::string named_;  ///< what database_url found, unless it is the private PostgreSQL
  std::stop_source stop_;
  std::mutex mutex_;          ///< guards private_postgres_
  std::mutex handler_mutex_;  ///< guards on_signal_
  std::function<void()> on_signal_;
  std::optional<PrivatePostgres> private_postgres_;
};

[[nodiscard]] Failure to_failure(const PrivatePostgresError& error);
[[nodiscard]] Failure to_failure(const pg::Error& error);

}  // namespace faultline::cli
