#include "cli/support/context.h"

#include <cstdlib>

#include "cli/commands.h"
#include "cli/support/failures.h"

namespace faultline::cli {
namespace {

constexpr std::chrono::seconds kConnectMax{15};

/// Does not repeat it: what is no URL hides its password in a place unknown.
Failure not_a_url(std::string_view source) {
  return {.code = "invalid_database_url",
          .message = "what " + std::string{source} + " names is not a PostgreSQL URL",
          .hint = "write it as postgresql://user@host:5432/database, or as \"host=… dbname=…\"",
          .exit_code = ExitCode::wrong_usage};
}

}  // namespace

Failure to_failure(const PrivatePostgresError& error) {
  std::string message = error.message;
  if (!error.log_tail.empty()) message += "; the server's last words:\n" + error.log_tail;
  return {.code = std::string{to_string(error.code)}, .message = std::move(message), .hint = error.hint};
}

Failure to_failure(const pg::Error& error) {
  return {.code = std::string{to_string(error.code)}, .message = error.describe(), .hint = error.hint};
}

PrivatePostgresOptions Context::private_postgres_options() const {
  PrivatePostgresOptions options;
  if (!options_.data_dir.empty()) options.data_dir = options_.data_dir;
  options.stop = stop_.get_token();
  return options;
}

Expected<std::string> Context::start_private_postgres(bool keep_running) {
  const std::lock_guard lock{mutex_};
  if (private_postgres_) return private_postgres_->dsn();
  auto options = private_postgres_options();
  options.keep_running = keep_running;
  auto started = PrivatePostgres::start(options);
  if (!started) return std::unexpected(to_failure(started.error()));
  private_postgres_.emplace(std::move(*started));
  return private_postgres_->dsn();
}

Expected<std::string> Context::database_url() {
  if (!options_.database.empty()) {
    if (!looks_like_a_dsn(options_.database)) return std::unexpected(not_a_url("--database"));
    return options_.database;
  }
  if (const char* url = std::getenv("DATABASE_URL"); url != nullptr && *url != '\0') {
    if (!looks_like_a_dsn(url)) return std::unexpected(not_a_url("DATABASE_URL"));
    return url;
  }
  return start_private_postgres(false);
}

Expected<pg::Connection> Context::connect_to(const std::string& url) {
  pg::ConnectOptions options;
  options.dsn = url;
  auto connection = pg::Connection::open(options, std::chrono::steady_clock::now() + kConnectMax);
  if (connection) return std::move(*connection);
  return std::unexpected(Failure{
      .code = std::string{to_string(connection.error().code)},
      .message = "cannot use the database " + without_passwords(url) + ": " +
                 without_passwords_of(url, connection.error().describe()),
      .hint =
          "check that the server runs and that the URL's host, port, user and database are right; without "
          "--database and DATABASE_URL, Faultline runs its own PostgreSQL"});
}

Expected<pg::Connection> Context::connect() {
  auto url = database_url();
  if (!url) return std::unexpected(url.error());
  return connect_to(*url);
}

bool Context::uses_private_postgres() const {
  const char* url = std::getenv("DATABASE_URL");
  return options_.database.empty() && (url == nullptr || *url == '\0');
}

Expected<Store> Context::open_store(std::chrono::milliseconds call_timeout) {
  auto url = database_url();
  if (!url) return std::unexpected(url.error());
  if (uses_private_postgres()) {
    auto connection = connect_to(*url);
    if (!connection) return std::unexpected(connection.error());
    if (auto migrated = migrate(*connection, {}); !migrated) return std::unexpected(migrated.error());
  }
  auto store =
      Store::open({.database = *url, .application_name = "faultline cli", .call_timeout = call_timeout});
  if (!store) {
    Failure failure = to_failure(store.error());
    failure.message = without_passwords_of(*url, std::move(failure.message));
    return std::unexpected(std::move(failure));
  }
  return std::move(*store);
}

bool Context::holds_private_postgres() {
  const std::lock_guard lock{mutex_};
  return private_postgres_.has_value();
}

bool Context::private_postgres_died() {
  const std::lock_guard lock{mutex_};
  return private_postgres_ && private_postgres_->postmaster_pid() == 0;
}

Expected<void> Context::restart_private_postgres() {
  const std::lock_guard lock{mutex_};
  if (!private_postgres_) return {};
  auto runs = private_postgres_->ensure_running();
  if (!runs) return std::unexpected(to_failure(runs.error()));
  return {};
}

Expected<void> Context::close() {
  const std::lock_guard lock{mutex_};
  if (!private_postgres_) return {};
  auto stopped = private_postgres_->stop();
  private_postgres_.reset();
  if (!stopped) return std::unexpected(to_failure(stopped.error()));
  return {};
}

void Context::on_signal(std::function<void()> handler) {
  const std::lock_guard lock{handler_mutex_};
  on_signal_ = std::move(handler);
}

bool Context::interrupt() {
  {
    const std::lock_guard lock{handler_mutex_};
    if (on_signal_) {
      on_signal_();
      return false;
    }
  }
  stop_.request_stop();
  (void)close();
  return true;
}

}  // namespace faultline::cli
