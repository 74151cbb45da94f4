#include "pg/connection.h"

#include <algorithm>
#include <optional>
#include <span>

#include <libpq-fe.h>

#include "pg/check.h"
#include "pg/connect.h"
#include "pg/prepared.h"
#include "pg/wire.h"

namespace faultline::pg {
namespace {

const Params kNoParams;
constexpr Statement kBegin{"", "BEGIN ISOLATION LEVEL READ COMMITTED"};
constexpr Statement kCommit{"", "COMMIT"};
constexpr Statement kRollback{"", "ROLLBACK"};
constexpr Statement kDeallocateAll{"", "DEALLOCATE ALL"};
constexpr Statement kBackendPid{"", "SELECT pg_backend_pid()"};
constexpr Statement kSetForSession{
    "", "SELECT set_config(s.name, s.value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)"};
constexpr Statement kSetForTransaction{
    "", "SELECT set_config(s.name, s.value, true) FROM unnest($1::text[], $2::text[]) AS s (name, value)"};

// Above this much queued data a commit is queued only after all before it has left, so that a
// connection that breaks meanwhile is known not to have been asked.
constexpr std::size_t kQueuedBytesMax = 64 * 1024;
constexpr std::size_t kCopySliceBytes = 64 * 1024;

// How a unit becomes durable, and so when its outcome can be unknown.
enum class Ending {
  none,       // it is part of a transaction that goes on
  at_sync,    // the implicit transaction of a pipeline commits at its Sync
  at_commit,  // a COMMIT statement
};

struct Command {
  enum class Role { control, prepare, step, commit };
  Role role = Role::control;
  const Statement* statement = nullptr;
  const Params* params = &kNoParams;
  PreparedStatements::Entry* prepared = nullptr;
  // Instead of `params`: the statement is a user's, and speaks text.
  std::optional<std::span<const std::optional<std::string>>> texts{};
};

// What has come of a unit so far.
struct Replies {
  std::vector<Result> results;
  std::optional<Error> error;  // the first
  bool committed = false;      // by a COMMIT statement that was answered
};

Error outcome_unknown(Error cause) {
  cause.code = Errc::outcome_unknown;
  cause.message = "it is not known whether the transaction was committed: " + cause.message;
  return cause;
}

bool is_stale_prepared_statement(const Error& error) {
  return error.sqlstate == "26000" ||  // does not exist: DISCARD or DEALLOCATE by someone else
         error.sqlstate == "42P05" ||  // exists already
         error.sqlstate == "0A000";    // its cached plan has another result type: the schema changed
}

class NonBlocking {
 public:
  explicit NonBlocking(PGconn* connection) : connection_(connection), was_(PQisnonblocking(connection)) {
    if (was_ == 0) PQsetnonblocking(connection_, 1);
  }
  ~NonBlocking() {
    if (was_ == 0) PQsetnonblocking(connection_, 0);
  }
  NonBlocking(const NonBlocking&) = delete;
  NonBlocking& operator=(const NonBlocking&) = delete;

 private:
  PGconn* connection_;
  int was_;
};

class PipelineMode {
 public:
  explicit PipelineMode(PGconn* connection)
      : connection_(connection),
        entered_(PQpipelineStatus(connection) == PQ_PIPELINE_OFF && PQenterPipelineMode(connection) == 1) {}
  ~PipelineMode() {
    if (entered_) PQexitPipelineMode(connection_);
  }
  PipelineMode(const PipelineMode&) = delete;
  PipelineMode& operator=(const PipelineMode&) = delete;
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  PGconn* connection_;
  bool entered_;
};

// libpq's arrays of pointers into a Params.
struct ParamArrays {
  explicit ParamArrays(const Params& params) : formats(static_cast<std::size_t>(params.count()), 1) {
    check(params.count() <= 65535, "a statement has at most 65535 parameters");
    for (int i = 0; i < params.count(); ++i) {
      values.push_back(params.value(i));
      lengths.push_back(params.length(i));
    }
  }
  std::vector<const char*> values;
  std::vector<int> lengths;
  std::vector<int> formats;
};

bool queue_text(PGconn* connection, const Command& command) {
  std::vector<const char*> values;
  for (const auto& text : *command.texts) values.push_back(text ? text->c_str() : nullptr);
  check(values.size() <= 65535, "a statement has at most 65535 parameters");
  return PQsendQueryParams(connection, std::string{command.statement->sql}.c_str(),
                           static_cast<int>(values.size()), nullptr, values.data(), nullptr, nullptr, 0) == 1;
}

bool queue(PGconn* connection, const Command& command) {
  if (command.texts) return queue_text(connection, command);
  const Params& params = *command.params;
  if (command.role == Command::Role::prepare) {
    return PQsendPrepare(connection, command.prepared->server_name.c_str(), command.prepared->sql.c_str(),
                         params.count(), params.types().data()) == 1;
  }
  const ParamArrays arrays{params};
  if (command.prepared != nullptr) {
    return PQsendQueryPrepared(connection, command.prepared->server_name.c_str(), params.count(),
                               arrays.values.data(), arrays.lengths.data(), arrays.formats.data(), 1) == 1;
  }
  return PQsendQueryParams(connection, std::string{command.statement->sql}.c_str(), params.count(),
                           params.types().data(), arrays.values.data(), arrays.lengths.data(),
                           arrays.formats.data(), 1) == 1;
}

}  // namespace

class Connection::Impl {
 public:
  struct StepView {
    const Statement* statement;
    const Params* params;
  };

  static std::vector<StepView> views_of(const Unit& unit) {
    std::vector<StepView> steps;
    steps.reserve(unit.steps_.size());
    for (const Unit::Step& step : unit.steps_) steps.push_back({&step.statement, &step.params});
    return steps;
  }

  Impl(PGconn* connection, Wire::Owner owner, int interrupt_fd = -1)
      : wire(connection, owner, interrupt_fd) {}

  [[nodiscard]] Expected<void> set_up(const ConnectOptions& options, Deadline deadline);
  [[nodiscard]] Expected<std::vector<Result>> run(std::span<const StepView> steps, Deadline deadline);
  [[nodiscard]] Expected<Result> exec_text(std::string_view sql,
                                           std::span<const std::optional<std::string>> params,
                                           Deadline deadline);
  [[nodiscard]] Expected<std::vector<Result>> begin(std::span<const StepView> first, Deadline deadline);
  [[nodiscard]] Expected<void> commit(Deadline deadline);
  void rollback(Deadline deadline);
  [[nodiscard]] bool in_transaction() const;
  [[nodiscard]] Expected<void> script(std::string_view sql, Deadline deadline);
  using CopySource = std::function<bool(std::string& buffer)>;
  [[nodiscard]] Expected<std::int64_t> copy_in(std::string_view sql, const CopySource& next,
                                               Deadline deadline);

  Wire wire;
  bool pooled = false;
  int backend_pid = 0;

 private:
  [[nodiscard]] Expected<void> ready_to_send(Deadline deadline);
  [[nodiscard]] std::vector<Command> plan(std::span<const StepView> steps, Ending ending);
  [[nodiscard]] Expected<std::vector<Result>> execute(std::span<const Command> commands, Ending ending,
                                                      Deadline deadline);
  [[nodiscard]] Expected<void> send(std::span<const Command> commands, Deadline deadline);
  [[nodiscard]] Expected<std::vector<Result>> collect(std::span<const Command> commands, Ending ending,
                                                      Deadline deadline);
  void take_reply(Replies& replies, const Command* command, Ending ending, ResultHandle result);
  void take_error(Replies& replies, const Command* command, Ending ending, const PGresult* result);
  /// Whether an error says that prepared statements are not what they were; then all will be prepared anew.
  [[nodiscard]] bool forgot_prepared(const Error& error);
  [[nodiscard]] Error out_of_step(Ending ending);
  [[nodiscard]] Error standby_not_waited_for();
  [[nodiscard]] Error send_failed();
  /// Reads to the end of a simple-protocol command. `asked`: a commit was asked for by it.
  [[nodiscard]] Expected<ResultHandle> finish_simple(bool asked, Deadline deadline);
  [[nodiscard]] Expected<std::int64_t> copy_rows(std::string_view sql, const CopySource& next,
                                                 Deadline deadline);
  [[nodiscard]] Expected<void> start_copy(std::string_view sql, Deadline deadline);
  [[nodiscard]] Expected<void> put_copy_data(std::string_view data, Deadline deadline);
  [[nodiscard]] Error abort_copy(Deadline deadline);

  Params settings_;
  PreparedStatements prepared_;
  bool deallocate_first_ = false;
};

Expected<void> Connection::Impl::set_up(const ConnectOptions& options, Deadline deadline) {
  // Last, so that nothing overrides them. Without warnings a cancelled wait for a standby is not seen.
  auto settings = options.settings;
  settings.emplace_back("default_transaction_isolation", "read committed");
  settings.emplace_back("client_min_messages", "warning");
  settings_.add_array(Type::text, settings, [](const auto& setting) { return setting.first; });
  settings_.add_array(Type::text, settings, [](const auto& setting) { return setting.second; });

  const StepView ask_pid{&kBackendPid, &kNoParams};
  auto answer = run({&ask_pid, 1}, deadline);
  if (!answer) return std::unexpected(std::move(answer.error()));
  backend_pid = answer->front().get<std::int32_t>(0, 0);
  pooled = backend_pid != PQbackendPID(wire.get());
  if (pooled) return {};
  const StepView set{&kSetForSession, &settings_};
  answer = run({&set, 1}, deadline);
  if (!answer) return std::unexpected(std::move(answer.error()));
  return {};
}

bool Connection::Impl::in_transaction() const {
  const PGTransactionStatusType status = PQtransactionStatus(wire.get());
  return status == PQTRANS_INTRANS || status == PQTRANS_INERROR;
}

Expected<void> Connection::Impl::ready_to_send(Deadline deadline) {
  if (Deadline::clock::now() >= deadline) {
    return std::unexpected(
        Error{.code = Errc::deadline_exceeded, .message = "the deadline had passed already"});
  }
  // Finding a dead connection before sending keeps the outcome known.
  if (!wire.alive_while_idle()) return std::unexpected(wire.lost());
  wire.forget_notices();
  return {};
}

std::vector<Command> Connection::Impl::plan(std::span<const StepView> steps, Ending ending) {
  using Role = Command::Role;
  std::vector<Command> commands;
  commands.reserve(steps.size() + 3);
  if (ending == Ending::at_commit) {
    commands.push_back({.statement = &kBegin});
    commands.push_back({.statement = &kSetForTransaction, .params = &settings_});
  }
  if (deallocate_first_) commands.push_back({.statement = &kDeallocateAll});
  for (const StepView& step : steps) {
    Command command{.role = Role::step, .statement = step.statement, .params = step.params};
    if (!step.statement->name.empty() && !pooled && wire.owned()) {
      command.prepared = prepared_.find(*step.statement, *step.params);
      if (command.prepared == nullptr) {
        command.prepared = &prepared_.add(*step.statement, *step.params);
        commands.push_back({Role::prepare, step.statement, step.params, command.prepared});
      }
    }
    commands.push_back(command);
  }
  if (ending == Ending::at_commit) commands.push_back({.role = Role::commit, .statement = &kCommit});
  return commands;
}

Expected<std::vector<Result>> Connection::Impl::run(std::span<const StepView> steps, Deadline deadline) {
  if (steps.empty()) return std::vector<Result>{};
  if (auto ready = ready_to_send(deadline); !ready) return std::unexpected(std::move(ready.error()));
  const Ending ending = in_transaction() ? Ending::none : pooled ? Ending::at_commit : Ending::at_sync;
  for (bool again = false;; again = true) {
    auto results = execute(plan(steps, ending), ending, deadline);
    prepared_.drop_unconfirmed();
    if (results) {
      deallocate_first_ = false;
      return results;
    }
    if (ending == Ending::at_commit && in_transaction()) rollback(deadline);
    // The server undid the whole unit, so that it may run again; a caller's transaction may not.
    if (!forgot_prepared(results.error()) || again || ending == Ending::none) return results;
  }
}

bool Connection::Impl::forgot_prepared(const Error& error) {
  if (!is_stale_prepared_statement(error) || !wire.owned() || pooled) return false;
  prepared_.clear();
  deallocate_first_ = true;
  return true;
}

Expected<Result> Connection::Impl::exec_text(std::string_view sql,
                                             std::span<const std::optional<std::string>> params,
                                             Deadline deadline) {
  if (auto ready = ready_to_send(deadline); !ready) return std::unexpected(std::move(ready.error()));
  const Statement statement{"", sql};
  const Command command{.role = Command::Role::step, .statement = &statement, .texts = params};
  auto results = execute({&command, 1}, in_transaction() ? Ending::none : Ending::at_sync, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  return std::move(results->front());
}

Expected<std::vector<Result>> Connection::Impl::execute(std::span<const Command> commands, Ending ending,
                                                        Deadline deadline) {
  const NonBlocking non_blocking{wire.get()};
  const PipelineMode pipeline{wire.get()};
  if (!pipeline.entered()) {
    return std::unexpected(
        Error{.code = Errc::server,
              .message = "the connection is busy with another statement or in pipeline mode"});
  }
  if (auto sent = send(commands, deadline); !sent) return std::unexpected(std::move(sent.error()));
  return collect(commands, ending, deadline);
}

Error Connection::Impl::send_failed() {
  const bool was_open = PQstatus(wire.get()) == CONNECTION_OK;
  Error error = wire.lost();
  if (was_open) error.code = Errc::server;
  return error;
}

Expected<void> Connection::Impl::send(std::span<const Command> commands, Deadline deadline) {
  std::size_t queued = 0;
  for (const Command& command : commands) {
    if (!queue(wire.get(), command)) return std::unexpected(send_failed());
    queued += command.params->bytes() + command.statement->sql.size();
    if (queued < kQueuedBytesMax) continue;
    if (auto flushed = wire.flush(deadline); !flushed) return flushed;
    queued = 0;
  }
  if (PQpipelineSync(wire.get()) == 0) return std::unexpected(send_failed());
  return wire.flush(deadline);
}

Expected<std::vector<Result>> Connection::Impl::collect(std::span<const Command> commands, Ending ending,
                                                        Deadline deadline) {
  Replies replies;
  for (std::size_t at = 0;;) {
    auto next = wire.next_result(deadline);
    if (!next) {
      if (replies.error || replies.committed) break;
      replies.error = ending == Ending::none ? next.error() : outcome_unknown(std::move(next.error()));
      break;
    }
    if (!*next) {
      if (++at <= commands.size() + 1) continue;
      // More ends than commands: what speaks there, such as a pooler that lost its server, is out of step.
      if (!replies.error) replies.error = out_of_step(ending);
      break;
    }
    if (PQresultStatus(next->get()) == PGRES_PIPELINE_SYNC) break;
    // After the last command only the Sync is left, and an error there is one of its commit.
    const Command* command = at < commands.size() ? &commands[at] : nullptr;
    take_reply(replies, command, ending, std::move(*next));
    if (!wire.usable() && replies.error) break;
  }
  if (replies.error) return std::unexpected(std::move(*replies.error));
  if (ending != Ending::none && wire.commit_in_doubt()) return std::unexpected(standby_not_waited_for());
  return std::move(replies.results);
}

void Connection::Impl::take_reply(Replies& replies, const Command* command, Ending ending,
                                  ResultHandle result) {
  switch (PQresultStatus(result.get())) {
    case PGRES_PIPELINE_ABORTED:
      return;
    case PGRES_FATAL_ERROR:
    case PGRES_BAD_RESPONSE:
      return take_error(replies, command, ending, result.get());
    case PGRES_COPY_IN:
    case PGRES_COPY_OUT:
    case PGRES_COPY_BOTH:
      wire.shut();
      replies.error = Error{.code = Errc::server, .message = "COPY cannot be part of a unit; use copy_in()"};
      return;
    default:
      break;
  }
  if (command == nullptr) return;
  switch (command->role) {
    case Command::Role::control:
      return;
    case Command::Role::prepare:
      command->prepared->confirmed = true;
      return;
    case Command::Role::step:
      replies.results.emplace_back(result.release());
      return;
    case Command::Role::commit:
      break;
  }
  replies.committed = std::string_view{PQcmdStatus(result.get())} == "COMMIT";
  if (replies.committed) return;
  replies.error = Error{.code = Errc::server,
                        .sqlstate = "25P02",
                        .message = "the transaction had failed before, so its commit rolled it back"};
}

void Connection::Impl::take_error(Replies& replies, const Command* command, Ending ending,
                                  const PGresult* result) {
  const bool fatal = is_fatal(result);
  if (fatal) wire.shut();
  if (replies.error || replies.committed) return;
  replies.error = error_of(result);
  if (command != nullptr) replies.error->statement = command->statement->name;
  // An ERROR at the commit says that it failed; a server that dies there may have committed. A pooler that
  // lost its server says so in the place of any answer: those that did not reach it may be of a commit.
  const bool committing = command == nullptr || command->role == Command::Role::commit || pooled;
  if (fatal && committing && ending != Ending::none) {
    replies.error = outcome_unknown(std::move(*replies.error));
  }
}

Error Connection::Impl::out_of_step(Ending ending) {
  wire.shut();
  Error error{.code = Errc::connection_lost,
              .message = "what the server answered fits nothing that it was asked"};
  return ending == Ending::none ? error : outcome_unknown(std::move(error));
}

Error Connection::Impl::standby_not_waited_for() {
  wire.shut();  // so that every unknown outcome is the last of its connection
  return outcome_unknown({.message = "the server did not wait for its synchronous standby"});
}

Expected<std::vector<Result>> Connection::Impl::begin(std::span<const StepView> first, Deadline deadline) {
  check(!in_transaction(), "begin() is called outside a transaction");
  if (auto ready = ready_to_send(deadline); !ready) return std::unexpected(std::move(ready.error()));
  std::vector<Command> commands{{.statement = &kBegin}};
  if (pooled) commands.push_back({.statement = &kSetForTransaction, .params = &settings_});
  std::ranges::copy(plan(first, Ending::none), std::back_inserter(commands));
  auto begun = execute(commands, Ending::none, deadline);
  prepared_.drop_unconfirmed();
  if (begun) return begun;
  static_cast<void>(forgot_prepared(begun.error()));
  rollback(deadline);
  return begun;
}

Expected<void> Connection::Impl::commit(Deadline deadline) {
  if (auto ready = ready_to_send(deadline); !ready) return ready;
  if (!in_transaction()) {
    // By a COMMIT or ROLLBACK among a user's statements, or by a pooler that gave the session to somebody
    // else.
    wire.shut();
    return std::unexpected(
        outcome_unknown({.message = "the transaction had ended before its commit was asked for"}));
  }
  const Command commands[] = {{.role = Command::Role::commit, .statement = &kCommit}};
  auto committed = execute(commands, Ending::at_commit, deadline);
  if (!committed) return std::unexpected(std::move(committed.error()));
  return {};
}

void Connection::Impl::rollback(Deadline deadline) {
  if (!wire.usable() || !in_transaction()) return;
  const Command commands[] = {{.statement = &kRollback}};
  if (!execute(commands, Ending::none, deadline)) wire.shut();
}

Expected<ResultHandle> Connection::Impl::finish_simple(bool asked, Deadline deadline) {
  ResultHandle last;
  std::optional<Error> error;
  for (;;) {
    auto next = wire.next_result(deadline);
    if (!next) {
      if (!error) error = asked ? outcome_unknown(std::move(next.error())) : std::move(next.error());
      break;
    }
    if (!*next) break;
    const ExecStatusType status = PQresultStatus(next->get());
    if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH) {
      wire.shut();
      error = Error{.code = Errc::server, .message = "COPY cannot be part of a script; use copy_in()"};
      break;
    }
    if ((status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) && !error) {
      error = error_of(next->get());
      if (is_fatal(next->get())) wire.shut();
    }
    last = std::move(*next);
  }
  if (error) return std::unexpected(std::move(*error));
  if (asked && wire.commit_in_doubt()) return std::unexpected(standby_not_waited_for());
  return last;
}

Expected<void> Connection::Impl::script(std::string_view sql, Deadline deadline) {
  if (auto ready = ready_to_send(deadline); !ready) return ready;
  const NonBlocking non_blocking{wire.get()};
  const bool asked = !in_transaction();
  if (PQsendQuery(wire.get(), std::string{sql}.c_str()) == 0) return std::unexpected(send_failed());
  if (auto flushed = wire.flush(deadline); !flushed) return flushed;
  auto finished = finish_simple(asked, deadline);
  if (!finished) return std::unexpected(std::move(finished.error()));
  return {};
}

Expected<std::int64_t> Connection::Impl::copy_in(std::string_view sql, const CopySource& next,
                                                 Deadline deadline) {
  if (!pooled || in_transaction()) return copy_rows(sql, next, deadline);
  if (auto begun = begin({}, deadline); !begun) return std::unexpected(std::move(begun.error()));
  struct Undo {
    Impl& impl;
    Deadline deadline;
    ~Undo() { impl.rollback(deadline); }
  } undo{*this, deadline};
  auto rows = copy_rows(sql, next, deadline);
  if (!rows) return rows;
  if (auto committed = commit(deadline); !committed) return std::unexpected(std::move(committed.error()));
  return rows;
}

Expected<std::int64_t> Connection::Impl::copy_rows(std::string_view sql, const CopySource& next,
                                                   Deadline deadline) {
  if (auto ready = ready_to_send(deadline); !ready) return std::unexpected(std::move(ready.error()));
  const NonBlocking non_blocking{wire.get()};
  const bool commits = !in_transaction();
  if (auto started = start_copy(sql, deadline); !started) return std::unexpected(std::move(started.error()));
  std::string buffer;
  for (bool more = true; more;) {
    buffer.clear();
    try {
      more = next(buffer);
    } catch (...) {
      static_cast<void>(abort_copy(deadline));
      throw;
    }
    if (auto put = put_copy_data(buffer, deadline); !put) return std::unexpected(std::move(put.error()));
    // libpq hides an error until the end of the copy; ending it now brings the server's own error out.
    if (wire.owned() && wire.heard_more_than_notices()) return std::unexpected(abort_copy(deadline));
  }
  if (PQputCopyEnd(wire.get(), nullptr) != 1) return std::unexpected(send_failed());
  if (auto flushed = wire.flush(deadline); !flushed) return std::unexpected(std::move(flushed.error()));
  auto finished = finish_simple(commits, deadline);
  if (!finished) return std::unexpected(std::move(finished.error()));
  return Result{finished->release()}.affected();
}

Expected<void> Connection::Impl::start_copy(std::string_view sql, Deadline deadline) {
  if (PQsendQuery(wire.get(), std::string{sql}.c_str()) == 0) return std::unexpected(send_failed());
  if (auto flushed = wire.flush(deadline); !flushed) return flushed;
  auto answer = wire.next_result(deadline);
  if (!answer) return std::unexpected(std::move(answer.error()));
  if (PQresultStatus(answer->get()) == PGRES_COPY_IN) {
    wire.forget_notices();
    return {};
  }
  Error error = PQresultStatus(answer->get()) == PGRES_FATAL_ERROR
                    ? error_of(answer->get())
                    : Error{.code = Errc::server, .message = "the statement is not COPY … FROM STDIN"};
  static_cast<void>(finish_simple(false, deadline));
  return std::unexpected(std::move(error));
}

Expected<void> Connection::Impl::put_copy_data(std::string_view data, Deadline deadline) {
  while (!data.empty()) {
    const std::string_view slice = data.substr(0, kCopySliceBytes);
    data.remove_prefix(slice.size());
    if (PQputCopyData(wire.get(), slice.data(), static_cast<int>(slice.size())) != 1) {
      return std::unexpected(send_failed());
    }
    if (auto flushed = wire.flush(deadline); !flushed) return flushed;
    if (auto heard = wire.read_some(Deadline::min()); !heard)
      return std::unexpected(std::move(heard.error()));
    if (Deadline::clock::now() >= deadline) {
      wire.shut();
      return std::unexpected(
          Error{.code = Errc::deadline_exceeded, .message = "the deadline passed during a COPY"});
    }
  }
  return {};
}

Error Connection::Impl::abort_copy(Deadline deadline) {
  if (PQputCopyEnd(wire.get(), "given up by the client") != 1) return send_failed();
  if (auto flushed = wire.flush(deadline); !flushed) return flushed.error();
  auto finished = finish_simple(false, deadline);
  check(!finished, "a COPY that was given up fails");
  return finished.error();
}

Unit& Unit::add(const Statement& statement, Params params) {
  steps_.push_back({statement, std::move(params)});
  return *this;
}

Connection::Connection(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Expected<Connection> Connection::open(const ConnectOptions& options, Deadline deadline) {
  auto connected = connect(options, deadline);
  if (!connected) return std::unexpected(std::move(connected.error()));
  Connection connection{std::make_unique<Impl>(*connected, Wire::Owner::self, options.interrupt_fd)};
  if (auto ready = connection.impl_->set_up(options, deadline); !ready) {
    Error error = std::move(ready.error());
    if (error.connection_is_gone()) error.code = Errc::cannot_connect;
    return std::unexpected(std::move(error));
  }
  return connection;
}

Connection Connection::borrow(pg_conn* connection) {
  Connection borrowed{std::make_unique<Impl>(connection, Wire::Owner::caller)};
  borrowed.impl_->backend_pid = PQbackendPID(connection);
  return borrowed;
}

Expected<Result> Connection::exec(const Statement& statement, const Params& params, Deadline deadline) {
  const Impl::StepView step{&statement, &params};
  auto results = impl_->run({&step, 1}, deadline);
  if (!results) return std::unexpected(std::move(results.error()));
  return std::move(results->front());
}

Expected<std::vector<Result>> Connection::run(const Unit& unit, Deadline deadline) {
  return impl_->run(Impl::views_of(unit), deadline);
}

Expected<Result> Connection::exec_text(std::string_view sql,
                                       std::span<const std::optional<std::string>> params,
                                       Deadline deadline) {
  return impl_->exec_text(sql, params, deadline);
}

Expected<void> Connection::exec_script(std::string_view sql, Deadline deadline) {
  return impl_->script(sql, deadline);
}

Expected<void> Connection::begin(Deadline deadline) {
  if (auto begun = impl_->begin({}, deadline); !begun) return std::unexpected(std::move(begun.error()));
  return {};
}

Expected<std::vector<Result>> Connection::begin(const Unit& first, Deadline deadline) {
  return impl_->begin(Impl::views_of(first), deadline);
}

Expected<void> Connection::commit(Deadline deadline) { return impl_->commit(deadline); }
void Connection::rollback(Deadline deadline) noexcept { impl_->rollback(deadline); }
bool Connection::in_transaction() const { return impl_->in_transaction(); }
bool Connection::transaction_failed() const {
  return PQtransactionStatus(impl_->wire.get()) == PQTRANS_INERROR;
}

Expected<std::int64_t> Connection::copy_in(std::string_view copy_sql,
                                           const std::function<bool(std::string& buffer)>& next,
                                           Deadline deadline) {
  return impl_->copy_in(copy_sql, next, deadline);
}

Expected<void> Connection::listen(std::string_view channel, Deadline deadline) {
  if (impl_->pooled) {
    return std::unexpected(
        Error{.code = Errc::server,
              .message = "LISTEN does not work through a transaction pooler; connect directly"});
  }
  const std::unique_ptr<char, decltype(&PQfreemem)> quoted{
      PQescapeIdentifier(impl_->wire.get(), channel.data(), channel.size()), &PQfreemem};
  if (!quoted)
    return std::unexpected(
        Error{.code = Errc::invalid_value, .message = "the channel's name is not valid text"});
  return impl_->script("LISTEN " + std::string{quoted.get()}, deadline);
}

Expected<std::vector<Notification>> Connection::wait_for_notifications(Deadline deadline) {
  for (;;) {
    std::vector<Notification> notifications;
    PQisBusy(impl_->wire.get());  // parses what an earlier statement read
    while (PGnotify* raw = PQnotifies(impl_->wire.get())) {
      const std::unique_ptr<PGnotify, decltype(&PQfreemem)> notify{raw, &PQfreemem};
      notifications.push_back({notify->relname, notify->extra, notify->be_pid});
    }
    if (!notifications.empty()) return notifications;
    auto more = impl_->wire.read_some(deadline);
    if (!more) return std::unexpected(std::move(more.error()));
    if (!*more) return notifications;
  }
}

bool Connection::usable() const { return impl_ && impl_->wire.usable(); }
bool Connection::idle() const {
  return PQtransactionStatus(impl_->wire.get()) == PQTRANS_IDLE &&
         PQpipelineStatus(impl_->wire.get()) == PQ_PIPELINE_OFF;
}
bool Connection::alive_while_idle() { return impl_->wire.alive_while_idle(); }
bool Connection::behind_pooler() const { return impl_->pooled; }
pg_conn* Connection::native_handle() const { return impl_->wire.get(); }
int Connection::backend_pid() const { return impl_->backend_pid; }
int Connection::server_version() const { return PQserverVersion(impl_->wire.get()); }

}  // namespace faultline::pg
