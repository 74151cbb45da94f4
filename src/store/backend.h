#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "faultline/store.h"
#include "pg/pool.h"
#include "store/announce.h"
#include "store/validate.h"

namespace faultline::store {

/// What all verbs share: the pool, the limits, the number of buckets, the queues that are known to exist.
/// Thread-safe.
class Backend {
 public:
  using Partition = pg::Pool::Partition;

  [[nodiscard]] static Expected<std::unique_ptr<Backend>> open(const StoreOptions& options);

  /// When a call that begins now gives up.
  [[nodiscard]] Deadline deadline() const { return Deadline::clock::now() + options_.call_timeout; }
  [[nodiscard]] Limits limits() const {
    return {.payload_bytes_max = options_.payload_bytes_max, .json_depth_max = options_.json_depth_max};
  }
  [[nodiscard]] int buckets() const { return buckets_; }

  /// Runs a unit, again after errors that left nothing behind. `outcome_unknown` comes back as it is.
  ///
  /// After an unknown outcome the next unit writes, whatever it finds: its commit waits for the standbys that
  /// the one in doubt may not have waited for, and so what it says of that one is as durable as it sounds.
  [[nodiscard]] pg::Expected<std::vector<pg::Result>> try_run(const pg::Unit& unit, Deadline deadline,
                                                              Partition partition = Partition::general);
  /// The same for a unit that may as well be done twice: an unknown outcome, too, is run again.
  [[nodiscard]] Expected<std::vector<pg::Result>> run(const pg::Unit& unit, Deadline deadline,
                                                      Partition partition = Partition::general);
  [[nodiscard]] Expected<pg::Result> run(const pg::Statement& statement, pg::Params params,
                                         Deadline deadline);
  /// The same for what only reads: an answer that did not come leaves nothing unknown.
  [[nodiscard]] Expected<std::vector<pg::Result>> read(const pg::Unit& unit, Deadline deadline);
  [[nodiscard]] Expected<pg::Result> read(const pg::Statement& statement, pg::Params params,
                                          Deadline deadline);

  /// Of a commit that was not run by this.
  void outcome_was_unknown() { ++doubts_; }

  /// Calls that wait for the database, now or later, have reached their deadlines.
  void give_up() {
    given_up_ = true;
    pool_.give_up();
    transactions_.give_up();
  }

  [[nodiscard]] pg::Expected<pg::Pool::Borrowed> acquire(Deadline deadline) {
    return pool_.acquire(deadline);
  }

  /// For a fenced transaction: a connection whose planner settings are the database's own.
  [[nodiscard]] pg::Expected<pg::Pool::Borrowed> acquire_for_transaction(Deadline deadline) {
    return transactions_.acquire(deadline);
  }

  [[nodiscard]] Announcer& announcer() { return announcer_; }
  /// Announces queues whose jobs became available by what was just committed. If that fails, they are found
  /// by polling.
  void announce(const std::set<std::string>& queues, Deadline deadline);

  /// Queues are never dropped, so one that was seen once is there for good.
  [[nodiscard]] std::optional<Error> check_queue_exists(std::string_view queue, Deadline deadline);
  [[nodiscard]] bool knows_queue(std::string_view queue);
  [[nodiscard]] Expected<void> learn_queues(Deadline deadline);
  void remember_queue(std::string_view queue);
  void forget_queue(std::string_view queue);

 private:
  explicit Backend(const StoreOptions& options);

  /// Whether the schema is one that this program speaks, and what is fixed in it.
  [[nodiscard]] Expected<void> look_at_schema(Deadline deadline);
  void reached(const pg::Error* error);
  [[nodiscard]] pg::Expected<std::vector<pg::Result>> run_once(const pg::Unit& unit, Deadline deadline,
                                                               Partition partition);

  StoreOptions options_;
  pg::Pool pool_;
  pg::Pool transactions_;
  Announcer announcer_;
  int buckets_ = 1;
  std::atomic<bool> given_up_{false};
  std::atomic<bool> lost_{false};
  std::atomic<std::uint64_t> doubts_{0};          ///< unknown outcomes so far
  std::atomic<std::uint64_t> doubts_settled_{0};  ///< how many of them a later commit has settled
  std::mutex mutex_;
  std::set<std::string, std::less<>> queues_;  // guarded by mutex_
};

/// The hint of an error that does not pass by itself, although the database answers.
inline constexpr const char* kRestartServer =
    "PostgreSQL's files were replaced or removed while it ran: restart it";

/// The database's error as a caller of the store reacts to it.
[[nodiscard]] Error translate(const pg::Error& error);
[[nodiscard]] Error unknown_queue(std::string_view queue);

}  // namespace faultline::store
