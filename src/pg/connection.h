#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "faultline/time.h"
#include "pg/error.h"
#include "pg/params.h"
#include "pg/result.h"
#include "pg/statement.h"

struct pg_conn;

namespace faultline::pg {

struct ConnectOptions {
  /// A libpq URL or keyword string; several hosts and target_session_attrs are honoured. Of several
  /// hosts, a read-write one is looked for unless the DSN says otherwise.
  std::string dsn;
  std::string application_name = "faultline";
  /// Per host, unless the DSN has its own connect_timeout.
  std::chrono::milliseconds connect_timeout{5'000};
  std::chrono::milliseconds tcp_user_timeout{10'000};
  /// Settings that every transaction of this connection runs with, such as plan_cache_mode. Set once
  /// on a direct connection; behind a transaction pooler set again inside every transaction.
  std::vector<std::pair<std::string, std::string>> settings{};
  /// A descriptor, such as an Interrupt's: once it is readable, every wait for the server ends as if its
  /// deadline had passed.
  int interrupt_fd = -1;
};

/// A batch of statements that is sent in one round trip and is one atomic unit: all commit or none.
class Unit {
 public:
  Unit& add(const Statement& statement, Params params);
  [[nodiscard]] std::size_t size() const { return steps_.size(); }
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  friend class Connection;
  struct Step {
    Statement statement;
    Params params;
  };
  std::vector<Step> steps_;
};

struct Notification {
  std::string channel;
  std::string payload;
  int backend_pid = 0;
};

/// One connection. Not thread-safe: one thread at a time. All calls wait at most until `deadline`.
/// After an error whose `connection_is_gone()` the object can only be destroyed.
///
/// Transactions are READ COMMITTED. On a direct connection a named statement is prepared when it is
/// first used; behind a transaction pooler nothing depends on the session.
class Connection {
 public:
  [[nodiscard]] static Expected<Connection> open(const ConnectOptions& options, Deadline deadline);
  /// Uses a connection that the caller owns and keeps open; never closes it, sets nothing on it, and
  /// leaves it in the mode in which it was found. Works inside the caller's transaction. After an
  /// error whose `connection_is_gone()` its socket is shut and the caller too can only close it.
  /// Notices go where the caller sends them, so a cancelled wait for a standby is not seen here.
  [[nodiscard]] static Connection borrow(pg_conn* connection);

  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;
  ~Connection();

  /// One statement, its own transaction unless one is open.
  [[nodiscard]] Expected<Result> exec(const Statement& statement, const Params& params, Deadline deadline);
  /// One round trip, one atomic unit. Results in the order of the statements.
  /// Inside an open transaction the unit becomes part of it.
  [[nodiscard]] Expected<std::vector<Result>> run(const Unit& unit, Deadline deadline);
  /// One statement of a user's: parameters and results are text, and PostgreSQL finds the types. Texts hold
  /// no NUL. Nothing is prepared.
  [[nodiscard]] Expected<Result> exec_text(std::string_view sql,
                                           std::span<const std::optional<std::string>> params,
                                           Deadline deadline);
  /// SQL text with any number of statements and no parameters, through the simple protocol. Behind a
  /// pooler it sees `ConnectOptions::settings` only inside an open transaction.
  [[nodiscard]] Expected<void> exec_script(std::string_view sql, Deadline deadline);

  /// Explicit transactions, for callers whose next statement depends on the last answer.
  [[nodiscard]] Expected<void> begin(Deadline deadline);
  /// The same, with the transaction's first statements in the same round trip. After an error no transaction
  /// is open.
  [[nodiscard]] Expected<std::vector<Result>> begin(const Unit& first, Deadline deadline);
  [[nodiscard]] Expected<void> commit(Deadline deadline);  ///< may be outcome_unknown
  void rollback(Deadline deadline) noexcept;               ///< best effort; harmless without a transaction
  [[nodiscard]] bool in_transaction() const;
  /// A statement of the open transaction failed: it can only be rolled back.
  [[nodiscard]] bool transaction_failed() const;

  /// COPY … FROM STDIN. `next` fills the empty buffer with more data and returns false at the end
  /// (what it left in the buffer then is still copied); memory stays flat however much is copied.
  /// If `next` throws, or the deadline passes, nothing is copied. Returns the number of rows.
  [[nodiscard]] Expected<std::int64_t> copy_in(std::string_view copy_sql,
                                               const std::function<bool(std::string& buffer)>& next,
                                               Deadline deadline);

  /// LISTEN is session state: use it on a connection of its own and never through a pooler.
  [[nodiscard]] Expected<void> listen(std::string_view channel, Deadline deadline);
  /// The next notifications, or none at the deadline.
  [[nodiscard]] Expected<std::vector<Notification>> wait_for_notifications(Deadline deadline);

  [[nodiscard]] bool usable() const;
  /// Outside of a transaction, and with nothing under way.
  [[nodiscard]] bool idle() const;
  /// Looks, without a round trip, whether the server closed the connection while it was idle.
  [[nodiscard]] bool alive_while_idle();
  /// A pooler stands between us and the server (its backend pid is not the server's).
  [[nodiscard]] bool behind_pooler() const;
  /// For code that speaks libpq. It leaves no statement under way and no mode changed.
  [[nodiscard]] pg_conn* native_handle() const;
  [[nodiscard]] int backend_pid() const;     ///< the server's, also behind a pooler at connect time
  [[nodiscard]] int server_version() const;  ///< as libpq: 150004

 private:
  class Impl;
  explicit Connection(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline::pg
