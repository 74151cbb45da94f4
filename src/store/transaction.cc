#include "store/transaction.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <exception>
#include <thread>

#include "pg/backoff.h"
#include "sql/statements.h"
#include "store/enqueue.h"
#include "store/settle.h"

namespace faultline {
namespace {

/// The next word of a statement in upper case, after white space and comments; takes it off.
std::string take_word(std::string_view& sql) {
  for (;;) {
    const std::size_t start = sql.find_first_not_of(" \t\r\n\f\v;");
    sql.remove_prefix(std::min(start, sql.size()));
    if (sql.starts_with("--")) {
      sql.remove_prefix(std::min(sql.find('\n'), sql.size()));
    } else if (sql.starts_with("/*")) {
      int depth = 0;
      do {
        const bool opens = sql.starts_with("/*");
        const bool closes = sql.starts_with("*/");
        depth += opens ? 1 : closes ? -1 : 0;
        sql.remove_prefix(opens || closes ? 2 : 1);
      } while (depth > 0 && !sql.empty());
    } else {
      break;
    }
  }
  std::string word;
  while (!sql.empty() && std::isalpha(static_cast<unsigned char>(sql.front())) != 0) {
    word.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(sql.front()))));
    sql.remove_prefix(1);
  }
  return word;
}

/// COMMIT, END, ROLLBACK (not: TO a savepoint), ABORT, PREPARE TRANSACTION.
bool ends_transaction(std::string_view sql) {
  const std::string first = take_word(sql);
  std::string second = take_word(sql);
  if (first == "COMMIT" || first == "END" || first == "ABORT") return true;
  if (first == "PREPARE") return second == "TRANSACTION";
  if (first != "ROLLBACK") return false;
  if (second == "WORK" || second == "TRANSACTION") second = take_word(sql);
  return second != "TO";
}

SqlError sql_error(const pg::Error& error) {
  if (!error.sqlstate.empty()) return {error.sqlstate, error.describe()};
  switch (error.code) {
    case pg::Errc::cannot_connect:
    case pg::Errc::connection_lost:
      return {"08006", error.describe()};
    case pg::Errc::deadline_exceeded:
      return {"57014", error.describe()};
    default:
      return {"XX000", error.describe()};
  }
}

void check_text(std::string_view text, const char* what) {
  if (text.find('\0') != std::string_view::npos) {
    throw std::invalid_argument(std::string{what} +
                                " contains a NUL byte, which PostgreSQL's text cannot hold; send bytes as "
                                "bytea, in hexadecimal after \\x");
  }
}

}  // namespace

SqlParam::SqlParam(double value) {
  std::array<char, 32> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text_.emplace(buffer.data(), end);
}

class Rows::Data {
 public:
  explicit Data(pg::Result rows) : result(std::move(rows)) {}
  pg::Result result;
};

std::size_t Rows::size() const { return data_ ? static_cast<std::size_t>(data_->result.rows()) : 0; }
std::size_t Rows::columns() const { return data_ ? static_cast<std::size_t>(data_->result.columns()) : 0; }
std::size_t Rows::affected() const { return data_ ? static_cast<std::size_t>(data_->result.affected()) : 0; }

std::optional<std::string_view> Rows::text(std::size_t row, std::size_t column) const {
  if (row >= size() || column >= columns()) {
    throw std::out_of_range("there is no row " + std::to_string(row) + ", column " + std::to_string(column) +
                            ": the answer has " + std::to_string(size()) + " rows of " +
                            std::to_string(columns()) + " columns");
  }
  return data_->result.text(static_cast<int>(row), static_cast<int>(column));
}

std::size_t Rows::column(std::string_view name) const {
  const int column = data_ ? data_->result.column(name) : -1;
  if (column < 0) throw std::out_of_range("the answer has no column \"" + std::string{name} + "\"");
  return static_cast<std::size_t>(column);
}

std::string_view Rows::required(std::size_t row, std::size_t column) const {
  const auto value = text(row, column);
  if (!value) throw std::invalid_argument("the value is NULL; look with text()");
  return *value;
}

class Transaction::Impl {
 public:
  Impl(store::Backend& backend, pg::Connection& connection) : backend_(backend), connection_(connection) {}

  Rows exec(std::string_view sql, std::span<const SqlParam> params) {
    check_text(sql, "the statement");
    if (ends_transaction(sql)) {
      throw SqlError(
          "2D000",
          "a fenced transaction cannot be ended by a statement: return from the body to commit, throw "
          "to roll back");
    }
    require_open();
    std::vector<std::optional<std::string>> texts;
    texts.reserve(params.size());
    for (const SqlParam& param : params) {
      if (param.text()) check_text(*param.text(), "a parameter");
      texts.push_back(param.text());
    }
    return Rows{
        std::make_shared<const Rows::Data>(value_of(connection_.exec_text(sql, texts, backend_.deadline())))};
  }

  std::vector<Submission> enqueue(std::span<const NewJob> jobs) {
    require_open();
    if (auto problem = store::check_jobs(backend_, jobs, backend_.deadline())) {
      if (may_pass(problem->code)) throw SqlError("08006", problem->describe());
      throw std::invalid_argument(problem->describe());
    }
    // Borrowed, so that nothing is prepared under settings that are the user's.
    pg::Connection connection = pg::Connection::borrow(connection_.native_handle());
    return value_of(store::add_jobs_in(backend_, connection, jobs, backend_.deadline()));
  }

  [[nodiscard]] pg_conn* native_handle() { return connection_.native_handle(); }

  /// The error because of which the transaction cannot be committed, if there is one.
  [[nodiscard]] std::optional<pg::Error> failure() const {
    const bool lost = !connection_.usable() || (failure_ && failure_->connection_is_gone());
    if (!lost && !connection_.transaction_failed()) return std::nullopt;
    if (failure_) return failure_;
    // By code that spoke to libpq itself.
    return pg::Error{.code = lost ? pg::Errc::connection_lost : pg::Errc::server,
                     .message = lost ? "the connection to the server was lost" : "a statement failed"};
  }

 private:
  void require_open() const {
    if (!connection_.usable() || connection_.in_transaction()) return;
    throw SqlError("25P01", "the transaction was ended by its own body");
  }

  template <class T>
  T value_of(pg::Expected<T> result) {
    if (result) return std::move(*result);
    // After the first error the server only says that there was one; one after a savepoint's rollback is
    // new.
    if (!failure_ || result.error().sqlstate != "25P02") failure_ = result.error();
    throw sql_error(*failure_);
  }

  store::Backend& backend_;
  pg::Connection& connection_;
  std::optional<pg::Error> failure_;
};

Rows Transaction::exec(std::string_view sql, std::initializer_list<SqlParam> params) {
  return impl_.exec(sql, {params.begin(), params.size()});
}
Rows Transaction::exec(std::string_view sql, std::span<const SqlParam> params) {
  return impl_.exec(sql, params);
}
Submission Transaction::enqueue(const NewJob& job) { return impl_.enqueue({&job, 1}).front(); }
std::vector<Submission> Transaction::enqueue(std::span<const NewJob> jobs) { return impl_.enqueue(jobs); }
pg_conn* Transaction::native_handle() { return impl_.native_handle(); }

namespace store {
namespace {

using Body = std::function<Outcome(Transaction&)>;

/// Why a try did not end in a verdict. It left nothing behind.
struct Trouble {
  Error error;
  bool may_run_again = false;
  std::exception_ptr thrown{};  ///< by the body: it is rethrown, instead of the error
};

using Try = std::expected<Verdict, Trouble>;

std::unexpected<Trouble> trouble(const pg::Error& error) {
  // The settlement's prepared statement, which the body has deallocated, is prepared anew the next time.
  const bool deallocated = error.sqlstate == "26000" || error.sqlstate == "0A000";
  // Somebody holds the job's row for longer than a verb waits.
  const bool held = error.code == pg::Errc::lock_not_available;
  return std::unexpected(
      Trouble{.error = translate(error), .may_run_again = error.retryable() || deallocated || held});
}

/// A statement that is planned for each use: a plan that is kept would be one by the user's settings.
pg::Statement unprepared(const pg::Statement& statement) { return {"", statement.sql}; }

std::unexpected<Trouble> refusal(std::string message, std::string hint) {
  return std::unexpected(Trouble{.error = {.code = ErrorCode::invalid_argument,
                                           .message = std::move(message),
                                           .hint = std::move(hint)}});
}

class FencedTransaction {
 public:
  FencedTransaction(Backend& backend, Claims& claims, const Lease& lease, const Body& body)
      : backend_(backend), claims_(claims), lease_(lease), body_(body) {}

  [[nodiscard]] Expected<Verdict> run() {
    std::optional<pg::Backoff> backoff;
    Deadline give_up;
    for (;;) {
      Try tried = try_once();
      if (tried) return *tried;
      if (!backoff) {
        backoff.emplace(std::chrono::milliseconds{10}, std::chrono::milliseconds{1'000},
                        std::random_device{}());
        give_up = backend_.deadline();
      }
      const Deadline next = Deadline::clock::now() + backoff->next();
      if (!tried.error().may_run_again || next >= give_up) {
        if (tried.error().thrown) std::rethrow_exception(tried.error().thrown);
        return std::unexpected(std::move(tried.error().error));
      }
      std::this_thread::sleep_until(next);
    }
  }

 private:
  /// What is known of a try whose verdict is still to be found out: it was refused, or the answer to its
  /// COMMIT was lost.
  enum class Open { no, refused, sent };

  /// A try is judged when its connection has been given back, and with it what it wrote.
  [[nodiscard]] Try try_once() {
    Open open = Open::no;
    Settlement settlement{.lease = lease_, .outcome = {}};
    {
      auto connection = backend_.acquire_for_transaction(backend_.deadline());
      if (!connection) return std::unexpected(Trouble{.error = translate(connection.error())});
      Try tried = try_on(**connection, settlement, open);
      (*connection)->rollback(backend_.deadline());
      if (open == Open::no) return tried;
    }
    Try judged = judge(settlement, open);
    if (judged && judged->committed()) after_commit(settlement, {});
    return judged;
  }

  [[nodiscard]] Try try_on(pg::Connection& connection, Settlement& settlement, Open& open) {
    auto number = begin(connection);
    if (!number) return trouble(number.error());
    if (number->empty()) {
      open = Open::refused;
      return Verdict{};
    }
    if (auto ended = run_body(connection, settlement.outcome); !ended) return std::unexpected(ended.error());
    return settle(connection, *number, settlement, open);
  }

  /// The transaction's number; empty if the lease is no longer good.
  [[nodiscard]] pg::Expected<std::string> begin(pg::Connection& connection) {
    pg::Params lease;
    lease.add(lease_.job.bucket()).add(lease_.job.value).add(lease_.token.value).add(lease_.lease_id);
    pg::Unit first;
    first.add(unprepared(sql::kTransactionId), {}).add(unprepared(sql::kLeasesPeek), std::move(lease));
    auto begun = connection.begin(first, backend_.deadline());
    if (!begun) return std::unexpected(std::move(begun.error()));
    return (*begun)[1].rows() == 0 ? std::string{} : (*begun)[0].get<std::string>(0, 0);
  }

  [[nodiscard]] std::expected<void, Trouble> run_body(pg::Connection& connection, Outcome& outcome) {
    Transaction::Impl impl{backend_, connection};
    try {
      Transaction transaction{impl};
      outcome = body_(transaction);
    } catch (...) {
      const auto failure = impl.failure();
      return std::unexpected(Trouble{
          .error = {}, .may_run_again = failure && failure->retryable(), .thrown = std::current_exception()});
    }
    if (const auto failure = impl.failure()) {
      if (failure->retryable()) return trouble(*failure);
      return refusal(
          "the body of the transaction returned although a statement had failed: " + failure->describe(),
          "nothing was committed; do not catch SqlError, or roll back to a savepoint");
    }
    if (auto problem = check_outcome(outcome, backend_.limits()))
      return std::unexpected(Trouble{.error = std::move(*problem)});
    return {};
  }

  [[nodiscard]] Try settle(pg::Connection& connection, const std::string& number,
                           const Settlement& settlement, Open& open) {
    if (!connection.in_transaction()) return ended_by_body();
    SettleBatch batch{backend_, {&settlement, 1}};
    const auto& group = batch.fenced().groups().front();
    pg::Unit unit;
    unit.add(unprepared(sql::kTransactionId), {});
    unit.add(unprepared(sql::kJobsSettle), batch.params(lease_.job.bucket(), group));
    auto results = connection.run(unit, backend_.deadline());
    if (!results) return trouble(results.error());
    if (results->front().get<std::string_view>(0, 0) != number) return ended_by_body();
    const Verdict verdict = VerdictReader{results->back()}.read(0);
    // Repeated: another transaction has settled this attempt, with what its body wrote. This one's must not
    // stay.
    if (!verdict.committed() || verdict.repeated) {
      open = Open::refused;
      return Verdict{};
    }
    batch.read(results->back())(0, 0);
    if (auto committed = connection.commit(backend_.deadline()); !committed) {
      const pg::Error& error = committed.error();
      if (error.code != pg::Errc::outcome_unknown) {
        auto failed = trouble(error);
        // Such as a deferred constraint: what the body wrote is at fault.
        if (!error.sqlstate.empty()) failed.error().thrown = std::make_exception_ptr(sql_error(error));
        return failed;
      }
      backend_.outcome_was_unknown();
      open = Open::sent;
      return Verdict{};
    }
    after_commit(settlement, batch.due_queues());
    return Verdict{};
  }

  [[nodiscard]] Try judge(const Settlement& settlement, Open open) {
    SettleBatch batch{backend_, {&settlement, 1}};
    const auto& group = batch.fenced().groups().front();
    auto rows =
        backend_.run(sql::kWritesJudge, batch.judge_params(lease_.job.bucket(), group, open == Open::sent),
                     backend_.deadline());
    if (!rows) {
      if (open == Open::sent) return Verdict{.status = Verdict::Status::unknown};
      return std::unexpected(Trouble{.error = std::move(rows.error())});
    }
    Verdict verdict = VerdictReader{*rows}.read(0);
    if (verdict.status == Verdict::Status::stale) {
      // The worker is done with a job that is to be cancelled: it ends now, instead of when the lease runs
      // out.
      if (verdict.stale.reason == StaleReason::cancelled &&
          verdict.stale.current_state == JobState::running) {
        const Settlement ending{.lease = lease_, .outcome = {.kind = Outcome::Kind::cancelled}};
        static_cast<void>(store::settle(backend_, {&ending, 1}, backend_.deadline()));
      }
      return verdict;
    }
    if (verdict.repeated) return Verdict{};
    return std::unexpected(Trouble{.error = {.code = ErrorCode::unavailable,
                                             .message = "the transaction could not be committed",
                                             .hint = "nothing was changed; try again"},
                                   .may_run_again = true});
  }

  void after_commit(const Settlement& settlement, const std::set<std::string>& due_queues) {
    if (settlement.outcome.kind == Outcome::Kind::released) claims_.rewind();
    backend_.announce(due_queues, backend_.deadline());
  }

  static std::unexpected<Trouble> ended_by_body() {
    return refusal(
        "the body ended its transaction by itself, and so the fence with it; the job was not settled",
        "leave the transaction open; what was written in it before is not covered by the fence");
  }

  Backend& backend_;
  Claims& claims_;
  const Lease& lease_;
  const Body& body_;
};

}  // namespace

Expected<Verdict> transact(Backend& backend, Claims& claims, const Lease& lease, const Body& body) {
  if (auto problem = FencedBatch{backend, {lease}}.check()) return std::unexpected(std::move(*problem));
  return FencedTransaction{backend, claims, lease, body}.run();
}

}  // namespace store
}  // namespace faultline
