#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/error.h"
#include "faultline/job.h"
#include "faultline/time.h"
#include "faultline/transaction.h"
#include "faultline/uuid.h"

namespace faultline {

struct StoreOptions {
  std::string database;  ///< a PostgreSQL URL or keyword string
  std::string application_name = "faultline";
  std::size_t connections_max = 4;   ///< besides one that is kept for heartbeats
  std::size_t transactions_max = 4;  ///< fenced transactions at once, each on a connection besides these
  /// How long a call may take in all, with retries and reconnects.
  std::chrono::milliseconds call_timeout{30'000};
  std::size_t payload_bytes_max = 1'048'576;  ///< of a payload, and of a result
  std::size_t json_depth_max = 128;
  /// Called with the error when the database is lost, while calls still try to reach it, and with null when
  /// it answers again; on the thread that finds out. Must not throw.
  std::function<void(const Error*)> on_reached{};
};

/// What becomes of jobs of which one has the key of a job with another kind or payload.
enum class KeyConflict {
  answer,  ///< that one is not added, and its answer says so (`Submission::Status::conflict`); the others are
  refuse,  ///< none is added, and the call is a `conflict`
};

struct ClaimRequest {
  std::string queue = "default";
  std::string worker;     ///< a name for people; it need not be unique
  std::size_t limit = 1;  ///< at most this many jobs, 1 to 1000
  /// The jobs may wait at the worker before they begin. Then a heartbeat says when one has (`Stage`), and
  /// until then an expired lease costs no attempt.
  bool ahead = false;
  /// At most this many of them are suspects. Who sets it runs each of these with nothing beside it, and says
  /// by a heartbeat that it begins one, or a job that must not run twice, before it does.
  std::optional<std::size_t> suspects_max{};
};

/// How far an attempt is, for heartbeats of jobs that do not begin when they are claimed.
enum class Stage {
  waiting,
  running,
  alone,  ///< running, with nothing beside it in its worker
};

struct ProgressReport {
  Lease lease;
  double fraction = 0;  ///< 0 to 1
  std::string note{};
};

struct Settlement {
  Lease lease;
  Outcome outcome;
  /// The API key by which a server writes it, for the record. A program on the database leaves it empty.
  std::string written_by{};
};

struct EffectKey {
  Lease lease;
  std::string key;
  /// Names the call that announces the effect: the same call sent again is told the same, another one is not.
  /// `forget_effects` takes back what this call announced. Nil: a new call; for `forget_effects`, whatever
  /// was announced under the lease.
  Uuid call{};
};

struct EffectResult {
  Lease lease;
  std::string key;
  std::string result;
};

/// What a person found out about an effect that was begun and never recorded.
struct EffectFinding {
  JobId job{};
  std::string key{};
  bool happened = false;
  std::string result{};  ///< what it gave, if it happened: the next attempt gets it
  std::string reason{};  ///< how that is known, for the record
  /// The token under which it was begun, as the job's history has it. None: that of the effect on record now.
  std::optional<FenceToken> begun_under{};
};

struct ListRequest {
  std::optional<std::string> queue{};
  std::optional<std::string> kind{};
  std::optional<JobState> state{};
  std::optional<JobId> before{};  ///< `next` of the page before
  std::size_t limit = 50;         ///< 1 to 1000
};

/// One page of a listing, newest first. Where no index finds what is asked for, jobs are looked at one after
/// another, and after some thousands the page ends, with fewer jobs than `limit` or none: there may still be
/// more after it.
struct JobPage {
  std::vector<JobSummary> jobs;
  std::optional<JobId> next{};  ///< where the next page begins; none: this was the last
  std::size_t looked_at = 0;    ///< how many jobs were looked at for this page
};

/// A job that the watchdog could not handle. It is tried again a minute later; somebody should look at it.
struct SweepProblem {
  JobId job;
  std::string queue;
  std::string message;  ///< the database's
};

struct SweepReport {
  std::vector<ExpiredLease> expired;
  std::vector<SweepProblem> problems;
  bool more = false;  ///< the sweep was full: there may be more
};

enum class CancelStatus {
  cancelled,  ///< it was waiting, and has ended
  requested,  ///< it is running: it can no longer succeed, and its worker will be told
  finished,   ///< it had ended before
  not_found,
  token_exhausted,
};
[[nodiscard]] std::string_view to_string(CancelStatus status);

enum class RequeueStatus {
  requeued,
  live,             ///< it is waiting or running: there is nothing to requeue
  not_found,        ///< or it was purged
  token_exhausted,  ///< its fencing tokens are used up; submit it as a new job
};
[[nodiscard]] std::string_view to_string(RequeueStatus status);

enum class PurgeStatus {
  purged,
  not_dead,  ///< it waits, runs, is held, or has ended: only dead jobs are purged
  not_found,
  token_exhausted,
};
[[nodiscard]] std::string_view to_string(PurgeStatus status);

enum class DecideStatus {
  decided,    ///< on record, by this call or by an earlier one that said the same
  otherwise,  ///< it was decided before, and differently: that stands
  recorded,   ///< its attempt has recorded what it gave: there is nothing to decide
  changed,    ///< it was begun anew since, under another token: look again
  running,    ///< an attempt is under way, and may be doing it right now
  not_found,  ///< no such effect was begun, or it was taken back
};
[[nodiscard]] std::string_view to_string(DecideStatus status);

/// The answer to the deletion of a queue.
struct QueueDeletion {
  enum class Status {
    deleted,   ///< now or before
    has_jobs,  ///< `live` of them: it stays as it is
    not_found,
  };
  Status status = Status::deleted;
  std::int64_t live = 0;
};
[[nodiscard]] std::string_view to_string(QueueDeletion::Status status);

/// The fenced job store. Every verb is a batch, a single job is a batch of one. Every write of a worker
/// carries its lease; one whose lease is no longer the current one changes nothing, comes back as stale
/// with the reason, and leaves evidence in the database. All time is the database's.
///
/// A verb on leases answers each lease in the order given. The same lease must not appear twice in one
/// batch. A batch may be of any size; what must be atomic is atomic per job, and per call where a verb
/// says so. Calls reconnect and retry by themselves where that is safe, until `call_timeout`.
///
/// Thread-safe: one store serves a whole process.
class Store {
 public:
  /// Connects, and refuses a database whose schema does not serve this library.
  [[nodiscard]] static Expected<Store> open(const StoreOptions& options);

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  /// For a program that ends: calls that wait for the database, now or later, fail at once, as if their time
  /// was up. What they had sent may have been done.
  void give_up();

  // Producing.

  /// Adds all jobs, or none if one of them is refused. Sent twice after a lost answer, they are added once.
  [[nodiscard]] Expected<std::vector<Submission>> enqueue(std::span<const NewJob> jobs,
                                                          KeyConflict on_conflict = KeyConflict::answer);
  [[nodiscard]] Expected<Submission> enqueue(const NewJob& job,
                                             KeyConflict on_conflict = KeyConflict::answer);
  /// Adds jobs inside the caller's open transaction, on the caller's libpq connection (a `PGconn*`): they
  /// exist if and only if that transaction commits. A key that belongs to another job refuses the call.
  [[nodiscard]] Expected<std::vector<Submission>> enqueue_in(pg_conn* connection,
                                                             std::span<const NewJob> jobs);
  /// Adds jobs from a source until it is empty, in one transaction and with flat memory. Jobs with
  /// idempotency keys are refused here. Returns how many were added.
  [[nodiscard]] Expected<std::size_t> enqueue_bulk(const std::function<std::optional<NewJob>()>& next);

  // Working.

  [[nodiscard]] Expected<std::vector<ClaimedJob>> claim(const ClaimRequest& request);
  /// Renews leases, on the connection that is kept for it. `extend` instead of the job's TTL if given; a
  /// renewal never shortens a lease. `stages`, one per lease or none at all: how far each is; what has begun
  /// stays so.
  [[nodiscard]] Expected<std::vector<Beat>> heartbeat(
      std::span<const Lease> leases, std::optional<std::chrono::milliseconds> extend = std::nullopt,
      std::span<const Stage> stages = {});
  [[nodiscard]] Expected<std::vector<Verdict>> progress(std::span<const ProgressReport> reports);
  /// Whether leases are still good, at this moment.
  [[nodiscard]] Expected<std::vector<Verdict>> check(std::span<const Lease> leases);
  /// Ends attempts. Sent again, by this call because its answer was lost or by another one later, the same
  /// settlement is found in the ledger, under its lease id, and is committed (`Verdict::repeated`). If the
  /// database cannot be asked in time the verdict is `unknown`.
  [[nodiscard]] Expected<std::vector<Verdict>> settle(std::span<const Settlement> settlements);
  /// Settles and claims in one round trip and one commit.
  struct Exchange {
    std::vector<Verdict> verdicts;
    std::vector<ClaimedJob> claimed;
  };
  [[nodiscard]] Expected<Exchange> exchange(std::span<const Settlement> settlements,
                                            const ClaimRequest& request);
  /// What the ledger says of attempts: the outcome, or nothing if none of theirs was committed.
  [[nodiscard]] Expected<std::vector<std::optional<Outcome::Kind>>> resolve(std::span<const Lease> leases);

  /// The fenced transaction: `body`'s own SQL and the attempt's settlement, with the outcome that `body`
  /// returns, commit together or not at all. Stale: all of it is rolled back, and there is evidence. `body`
  /// is run again, from the beginning, after errors that left nothing behind, such as a deadlock or a lost
  /// connection. An exception of its own rolls back and is rethrown. A body that returns although a statement
  /// had failed, or that ended the transaction by itself, is told so (invalid_argument), and nothing is
  /// settled.
  ///
  /// Uses connections of its own, whose planner settings are the database's. `call_timeout` bounds each
  /// statement, and how long after the first failure `body` is begun again; the whole takes as long as `body`
  /// does. The server ends a transaction that is idle for a minute.
  [[nodiscard]] Expected<Verdict> transact(const Lease& lease,
                                           const std::function<Outcome(Transaction&)>& body);

  [[nodiscard]] Expected<std::vector<Effect>> begin_effects(std::span<const EffectKey> keys);
  /// Records results; where one was recorded before, that one comes back.
  [[nodiscard]] Expected<std::vector<Effect>> record_effects(std::span<const EffectResult> results);
  /// Takes back what `begin_effects` announced under these leases and what certainly did not happen.
  [[nodiscard]] Expected<std::vector<Verdict>> forget_effects(std::span<const EffectKey> keys);

  // Maintenance.

  /// One sweep of the watchdog over up to `jobs_max` jobs of each bucket.
  [[nodiscard]] Expected<SweepReport> expire_leases(std::size_t jobs_max = 1'000);
  struct PruneReport {
    std::size_t jobs = 0;
    std::size_t dead = 0;  ///< dead jobs that were purged
    std::size_t keys = 0;
    std::size_t stale_writes = 0;
  };
  /// Retires finished jobs, idempotency keys and the evidence of stale writes past their queue's retention,
  /// and purges dead jobs past its dead_retention, one batch of each.
  [[nodiscard]] Expected<PruneReport> prune(std::size_t limit = 1'000);
  /// Keeps the counts cheap to read, one batch of it; worth doing now and then. True: there is more to do.
  [[nodiscard]] Expected<bool> fold_counts();

  // Operating. `call` names a call: whoever sends it again, because the answer was lost, gives the same name
  // and is told the same, and nothing is done twice. Nil: a call that is not sent again, but by the store
  // itself.

  [[nodiscard]] Expected<std::vector<CancelStatus>> cancel(std::span<const JobId> jobs, std::string_view who,
                                                           std::string_view reason, Uuid call = {});
  [[nodiscard]] Expected<std::vector<RequeueStatus>> requeue(std::span<const JobId> jobs,
                                                             std::string_view who, Uuid call = {});
  /// Ends dead jobs for good: they can no longer be requeued, and their payloads are gone. The ledger keeps
  /// their attempts, and who did it, for the queue's retention.
  [[nodiscard]] Expected<std::vector<PurgeStatus>> purge_dead(std::span<const JobId> jobs,
                                                              std::string_view who, Uuid call = {});
  /// Puts on record whether an effect happened that was begun and never recorded, so that the job can be
  /// requeued and goes on from there. Not while an attempt is under way.
  [[nodiscard]] Expected<DecideStatus> decide_effect(const EffectFinding& finding, std::string_view who);
  /// Makes a queue, or changes what is set.
  [[nodiscard]] Expected<void> set_queue(std::string_view name, const QueueSettings& settings);
  /// Changes a queue that there is; `unknown_queue` otherwise.
  [[nodiscard]] Expected<void> change_queue(std::string_view name, const QueueSettings& settings);
  [[nodiscard]] Expected<void> pause(std::string_view queue) { return change_queue(queue, {.paused = true}); }
  [[nodiscard]] Expected<void> resume(std::string_view queue) {
    return change_queue(queue, {.paused = false});
  }
  /// Deletes a queue that has no live jobs. Its finished jobs are kept for as long as they would have been.
  [[nodiscard]] Expected<QueueDeletion> delete_queue(std::string_view name);

  // Queries.

  [[nodiscard]] Expected<std::optional<Job>> job(JobId id) const;
  /// Several at once, in the order given; nothing for an id that names no job. Gives up at `until`, or at
  /// `call_timeout` if that is earlier.
  [[nodiscard]] Expected<std::vector<std::optional<Job>>> jobs(std::span<const JobId> ids,
                                                               Deadline until = Deadline::max()) const;
  /// The same without payloads and results, for those who poll often.
  [[nodiscard]] Expected<std::vector<std::optional<JobState>>> states(std::span<const JobId> ids,
                                                                      Deadline until = Deadline::max()) const;
  /// The queues that jobs belong to, in the order given; nothing for an id that names no job. A job's queue
  /// never changes.
  [[nodiscard]] Expected<std::vector<std::optional<std::string>>> queues_of(std::span<const JobId> ids) const;
  [[nodiscard]] Expected<std::optional<JobHistory>> history(JobId id) const;
  [[nodiscard]] Expected<JobPage> list(const ListRequest& request) const;
  /// The evidence, newest first. The next page is `before` the last moment of this one, and so a page has
  /// more than `limit` (1 to 1000) where several writes were refused at its last moment.
  [[nodiscard]] Expected<std::vector<StaleWrite>> stale_writes(
      std::size_t limit, std::optional<DatabaseTime> before = std::nullopt) const;
  [[nodiscard]] Expected<std::vector<Queue>> queues() const;
  /// Exact, and cheap however many jobs there are, as long as a watchdog runs somewhere.
  [[nodiscard]] Expected<std::vector<QueueCounts>> counts(
      const std::optional<std::string>& queue = std::nullopt) const;
  [[nodiscard]] Expected<DatabaseTime> now() const;
  /// Whether jobs can be written now: no table is locked, the disk has room, and it is no standby.
  [[nodiscard]] Expected<void> check_writable();

 private:
  class Impl;
  explicit Store(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace faultline
