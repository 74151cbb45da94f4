#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/error.h"
#include "faultline/job.h"
#include "faultline/store.h"

namespace faultline {

struct ClientOptions {
  std::string database;         ///< a PostgreSQL URL or keyword string
  std::string name = "client";  ///< who cancels and requeues, in the record
  std::size_t connections_max = 4;
  std::chrono::milliseconds call_timeout{30'000};
};

/// Adds jobs and follows them. Thread-safe: one client serves a whole process.
class Client {
 public:
  /// Connects, and refuses a database whose schema does not serve this library.
  [[nodiscard]] static Expected<Client> open(ClientOptions options);

  /// Adds one job, or returns the one that its idempotency key names. `conflict` if that one has another kind
  /// or payload: the key was meant for other work.
  [[nodiscard]] Expected<Submission> enqueue(const NewJob& job);
  /// Adds all jobs, or none if one of them is refused, as it is for a `conflict`.
  [[nodiscard]] Expected<std::vector<Submission>> enqueue(std::span<const NewJob> jobs);
  [[nodiscard]] Expected<std::vector<Submission>> enqueue(std::initializer_list<NewJob> jobs) {
    return enqueue(std::span{jobs.begin(), jobs.size()});
  }
  /// Adds jobs inside the caller's open transaction, on the caller's libpq connection (a `PGconn*`): they
  /// exist if and only if that transaction commits. `invalid_argument` if none is open. After an error of the
  /// database, and after the `conflict` of a batch, the transaction can only be rolled back.
  [[nodiscard]] Expected<Submission> enqueue_in(pg_conn* connection, const NewJob& job);
  [[nodiscard]] Expected<std::vector<Submission>> enqueue_in(pg_conn* connection,
                                                             std::span<const NewJob> jobs);
  [[nodiscard]] Expected<std::vector<Submission>> enqueue_in(pg_conn* connection,
                                                             std::initializer_list<NewJob> jobs) {
    return enqueue_in(connection, std::span{jobs.begin(), jobs.size()});
  }
  /// Adds jobs from a source until it is empty, in one transaction, with flat memory and without keys.
  [[nodiscard]] Expected<std::size_t> enqueue_bulk(const std::function<std::optional<NewJob>()>& next);

  /// The job as it is now; nothing if there is none of this id.
  [[nodiscard]] Expected<std::optional<Job>> get(JobId id) const;
  /// The same with every attempt, refused write and effect.
  [[nodiscard]] Expected<std::optional<JobHistory>> history(JobId id) const;
  [[nodiscard]] Expected<JobPage> list(const ListRequest& request) const;

  /// Waits until the job has succeeded, was cancelled, or is dead, and returns it. `timed_out` if it has not
  /// in this time; the job goes on. A held job is waited for: a person decides. With no time at all it looks
  /// once. `invalid_argument` at once if there is no such job. Survives the database's absence; while the
  /// database does not answer it may come back a few seconds late, as `unavailable`.
  [[nodiscard]] Expected<Job> await(JobId id, std::chrono::milliseconds timeout) const;
  /// The same for several jobs, in their order, all of them or `timed_out`. One statement looks at all that
  /// are still open.
  [[nodiscard]] Expected<std::vector<Job>> await(std::span<const JobId> ids,
                                                 std::chrono::milliseconds timeout) const;
  [[nodiscard]] Expected<std::vector<Job>> await(std::initializer_list<JobId> ids,
                                                 std::chrono::milliseconds timeout) const {
    return await(std::span{ids.begin(), ids.size()}, timeout);
  }

  // `call` names a call that may be sent again, with the same name, when its answer was lost: see
  // `Store::cancel`.

  [[nodiscard]] Expected<CancelStatus> cancel(JobId job, std::string_view reason, Uuid call = {});
  [[nodiscard]] Expected<std::vector<CancelStatus>> cancel(std::span<const JobId> jobs,
                                                           std::string_view reason, Uuid call = {});
  [[nodiscard]] Expected<RequeueStatus> requeue(JobId job, Uuid call = {});
  [[nodiscard]] Expected<std::vector<RequeueStatus>> requeue(std::span<const JobId> jobs, Uuid call = {});

  /// Puts on record, in this client's name, whether an effect happened that was begun and never recorded.
  /// Then the job can be requeued, and goes on from there.
  [[nodiscard]] Expected<DecideStatus> decide_effect(const EffectFinding& finding);

  /// Makes a queue, or changes what is set.
  [[nodiscard]] Expected<void> set_queue(std::string_view name, const QueueSettings& settings);
  /// Changes a queue that there is; `unknown_queue` otherwise.
  [[nodiscard]] Expected<void> change_queue(std::string_view name, const QueueSettings& settings);
  /// Deletes a queue that has no live jobs. Its finished jobs are kept for as long as they would have been.
  [[nodiscard]] Expected<QueueDeletion> delete_queue(std::string_view name);
  /// Nothing is claimed from a paused queue; what runs goes on.
  [[nodiscard]] Expected<void> pause(std::string_view queue);
  [[nodiscard]] Expected<void> resume(std::string_view queue);
  [[nodiscard]] Expected<std::vector<Queue>> queues() const;
  [[nodiscard]] Expected<std::vector<QueueCounts>> counts(
      const std::optional<std::string>& queue = std::nullopt) const;

 private:
  Client(std::shared_ptr<Store> store, std::string name) : store_(std::move(store)), name_(std::move(name)) {}

  std::shared_ptr<Store> store_;
  std::string name_;
};

}  // namespace faultline
