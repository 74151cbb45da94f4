#include "store/backend.h"

#include "pg/retry.h"
#include "schema/migrator.h"
#include "sql/statements.h"
#include "store/plan_settings.h"

namespace faultline::store {
namespace {

pg::Pool::Options pool_options(const StoreOptions& options, Settings settings, std::size_t connections_max) {
  pg::Pool::Options pool;
  pool.connect = {
      .dsn = options.database, .application_name = options.application_name, .settings = std::move(settings)};
  pool.connections_max = std::max<std::size_t>(connections_max, 1);
  return pool;
}

/// The result of a unit of one statement.
Expected<pg::Result> only(Expected<std::vector<pg::Result>> results) {
  if (!results) return std::unexpected(std::move(results.error()));
  return std::move(results->front());
}

}  // namespace

Error translate(const pg::Error& error) {
  Error result{.message = error.describe()};
  switch (error.code) {
    case pg::Errc::cannot_connect:
      result.code = ErrorCode::unavailable;
      result.hint = "check that PostgreSQL runs and that the database URL is right";
      break;
    case pg::Errc::connection_lost:
    case pg::Errc::deadline_exceeded:
    case pg::Errc::serialization_failure:
    case pg::Errc::deadlock_detected:
    case pg::Errc::query_canceled:
    case pg::Errc::out_of_resources:
      result.code = ErrorCode::unavailable;
      result.hint = error.sqlstate == pg::kFileIsGone ? kRestartServer : "nothing was changed; try again";
      break;
    case pg::Errc::lock_not_available:
      result.code = ErrorCode::locked;
      result.hint = "nothing was changed; `faultline doctor` says who holds the lock";
      break;
    case pg::Errc::outcome_unknown:
      result.code = ErrorCode::outcome_unknown;
      result.hint = "it may have been committed; look before you repeat it";
      break;
    case pg::Errc::read_only:
      result.code = ErrorCode::unavailable;
      result.hint = "this is a standby or a read-only session; connect to the primary";
      break;
    case pg::Errc::insufficient_privilege:
      result.code = ErrorCode::permission_denied;
      result.hint = "grant the role faultline_producer, faultline_worker or faultline_owner";
      break;
    case pg::Errc::undefined_object:
      result.code = ErrorCode::wrong_schema;
      result.hint = "run `faultline migrate` on the database";
      break;
    case pg::Errc::raised:
      // What the functions say of bad input. The store checks its own, so this is about what only they know.
      result.message = error.message;
      result.hint = error.hint;
      result.code = error.sqlstate == "FL404"   ? ErrorCode::unknown_queue
                    : error.sqlstate == "FL409" ? ErrorCode::conflict
                    : error.sqlstate == "FL423" ? ErrorCode::locked
                                                : ErrorCode::invalid_argument;
      if (result.code == ErrorCode::conflict) result.job = JobId::parse(error.detail);
      break;
    default:
      break;
  }
  return result;
}

Error unknown_queue(std::string_view queue) {
  return {.code = ErrorCode::unknown_queue,
          .message = "there is no queue \"" + std::string{queue} + "\"",
          .hint = "make it first, or check the name"};
}

Backend::Backend(const StoreOptions& options)
    : options_(options),
      pool_(pool_options(options, plan_settings(), options.connections_max)),
      transactions_(pool_options(options, transaction_settings(), options.transactions_max)) {}

Expected<std::unique_ptr<Backend>> Backend::open(const StoreOptions& options) {
  std::unique_ptr<Backend> backend{new Backend(options)};
  const Deadline deadline = backend->deadline();
  auto known = backend->look_at_schema(deadline);
  // It only reads. Whether a connection that was lost just then was the last one, the next try says.
  if (!known && known.error().code == ErrorCode::unavailable) known = backend->look_at_schema(deadline);
  if (!known) return std::unexpected(std::move(known.error()));
  return backend;
}

Expected<void> Backend::look_at_schema(Deadline deadline) {
  auto connection = acquire(deadline);
  if (!connection) return std::unexpected(translate(connection.error()));
  if (auto checked = schema::check(**connection, deadline); !checked)
    return std::unexpected(schema::to_error(std::move(checked.error())));
  auto meta = (*connection)->exec(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), deadline);
  if (!meta) {
    Error error = translate(meta.error());
    if (error.code == ErrorCode::outcome_unknown) error.code = ErrorCode::unavailable;
    return std::unexpected(std::move(error));
  }
  buckets_ = static_cast<int>(meta->get<std::int64_t>(0, 0));
  return {};
}

pg::Expected<std::vector<pg::Result>> Backend::run_once(const pg::Unit& unit, Deadline deadline,
                                                        Partition partition) {
  return pg::with_retry(deadline, {}, [&]() -> pg::Expected<std::vector<pg::Result>> {
    auto connection = pool_.acquire(deadline, partition);
    if (!connection) {
      // Its time may also be up because all connections are in use.
      if (connection.error().code != pg::Errc::deadline_exceeded) reached(&connection.error());
      return std::unexpected(std::move(connection.error()));
    }
    auto results = (*connection)->run(unit, deadline);
    reached(results ? nullptr : &results.error());
    return results;
  });
}

void Backend::reached(const pg::Error* error) {
  if (!options_.on_reached || given_up_) return;
  if (error == nullptr) {
    if (lost_.load(std::memory_order_relaxed) && lost_.exchange(false)) options_.on_reached(nullptr);
  } else if (error->connection_is_gone() && !lost_.exchange(true)) {
    const Error told = translate(*error);
    options_.on_reached(&told);
  }
}

pg::Expected<std::vector<pg::Result>> Backend::try_run(const pg::Unit& unit, Deadline deadline,
                                                       Partition partition) {
  const std::uint64_t doubts = doubts_;
  std::uint64_t settled = doubts_settled_;
  const bool in_doubt = settled < doubts;
  auto results = run_once(in_doubt ? pg::Unit{unit}.add(sql::kCommitMarker, {}) : unit, deadline, partition);
  if (!results) {
    if (results.error().code == pg::Errc::outcome_unknown) outcome_was_unknown();
    return results;
  }
  if (in_doubt) {
    results->pop_back();
    while (settled < doubts && !doubts_settled_.compare_exchange_weak(settled, doubts)) {
    }
  }
  return results;
}

Expected<std::vector<pg::Result>> Backend::run(const pg::Unit& unit, Deadline deadline, Partition partition) {
  for (;;) {
    auto results = try_run(unit, deadline, partition);
    if (results) return std::move(*results);
    if (results.error().code != pg::Errc::outcome_unknown || Deadline::clock::now() >= deadline) {
      return std::unexpected(translate(results.error()));
    }
  }
}

Expected<pg::Result> Backend::run(const pg::Statement& statement, pg::Params params, Deadline deadline) {
  return only(run(pg::Unit{}.add(statement, std::move(params)), deadline));
}

Expected<std::vector<pg::Result>> Backend::read(const pg::Unit& unit, Deadline deadline) {
  for (;;) {
    auto results = run_once(unit, deadline, Partition::general);
    if (results) return std::move(*results);
    if (results.error().code != pg::Errc::outcome_unknown) return std::unexpected(translate(results.error()));
    if (Deadline::clock::now() < deadline) continue;
    return std::unexpected(Error{.code = ErrorCode::unavailable,
                                 .message = "the database did not answer in time",
                                 .hint = "nothing was changed; try again"});
  }
}

Expected<pg::Result> Backend::read(const pg::Statement& statement, pg::Params params, Deadline deadline) {
  return only(read(pg::Unit{}.add(statement, std::move(params)), deadline));
}

void Backend::announce(const std::set<std::string>& queues, Deadline deadline) {
  pg::Unit unit;
  announcer_.announce(queues, Announcer::Commit::at_once, unit);
  if (!unit.empty()) static_cast<void>(try_run(unit, deadline));
}

std::optional<Error> Backend::check_queue_exists(std::string_view queue, Deadline deadline) {
  if (knows_queue(queue)) return std::nullopt;
  if (auto learnt = learn_queues(deadline); !learnt) return std::move(learnt.error());
  if (knows_queue(queue)) return std::nullopt;
  return unknown_queue(queue);
}

bool Backend::knows_queue(std::string_view queue) {
  const std::lock_guard lock{mutex_};
  return queues_.contains(queue);
}

Expected<void> Backend::learn_queues(Deadline deadline) {
  auto rows = read(sql::kQueuesList, pg::Params{}.add(std::int16_t{0}), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  const std::lock_guard lock{mutex_};
  for (int row = 0; row < rows->rows(); ++row) queues_.insert(rows->get<std::string>(row, 0));
  return {};
}

void Backend::remember_queue(std::string_view queue) {
  const std::lock_guard lock{mutex_};
  queues_.emplace(queue);
}

void Backend::forget_queue(std::string_view queue) {
  const std::lock_guard lock{mutex_};
  if (const auto known = queues_.find(queue); known != queues_.end()) queues_.erase(known);
}

}  // namespace faultline::store
