#include "cli/support/context.h"

#include <cstdlib>

#include "cli/commands.h"
#include "cli/support/failures.h"
#include "config/settings.h"

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

Expected<std::string> Context::named_database() const {
  if (!options_.database.empty()) {
    if (!looks_like_a_dsn(options_.database)) return std::unexpected(not_a_url("--database"));
    return options_.database;
  }
  for (const char* variable : {"FAULTLINE_DATABASE", "DATABASE_URL"}) {
    const char* url = std::getenv(variable);
    if (url == nullptr || *url == '\0') continue;
    if (!looks_like_a_dsn(url)) return std::unexpected(not_a_url(variable));
    return url;
  }
  const auto in_file = config::database_in_file(config::process_environment());
  if (in_file) return *in_file;
  return std::unexpected(Failure{.code = "invalid_setting",
                                 .message = in_file.error().message,
                                 .hint = in_file.error().hint,
                                 .exit_code = ExitCode::wrong_usage});
}

Expected<std::string> Context::database_url() {
  auto named = named_database();
  if (!named || !named->empty()) {
    if (named) named_ = *named;
    return named;
  }
  if (may_start_ || holds_private_postgres()) return start_private_postgres(false);
  const auto found = PrivatePostgres::inspect(private_postgres_options());
  if (!found) return std::unexpected(to_failure(found.error()));
  if (found->running) return start_private_postgres(false);
  return std::unexpected(Failure{
      .code = "no_database",
      .message = "no database is named, and no private PostgreSQL runs in " + found->data_dir.string(),
      .hint = "name one by --database, FAULTLINE_DATABASE or DATABASE_URL, or start the private one: "
              "faultline pg start",
      .exit_code = ExitCode::wrong_usage});
}

std::string Context::database_name() const {
  if (!named_.empty()) return without_passwords(named_);
  return "the private PostgreSQL in " + private_postgres_options().data_dir.string();
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
      .hint = "check that the server runs and that the URL's host, port, user and database are right"});
}

Expected<pg::Connection> Context::connect() {
  auto url = database_url();
  if (!url) return std::unexpected(url.error());
  return connect_to(*url);
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

bool Context::private_postgres_replaced() {
  const std::lock_guard lock{mutex_};
  return private_postgres_ && private_postgres_->files_replaced();
}

Expected<void> Context::renew_private_postgres() {
  const std::lock_guard lock{mutex_};
  if (!private_postgres_) return {};
  auto runs = private_postgres_->renew();
  if (!runs) return std::unexpected(to_failure(runs.error()));
  return {};
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
