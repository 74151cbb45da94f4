#include "faultline/store.h"

#include <algorithm>

#include "sql/statements.h"
#include "store/admin.h"
#include "store/answer.h"
#include "store/backend.h"
#include "store/claim.h"
#include "store/effects.h"
#include "store/enqueue.h"
#include "store/maintenance.h"
#include "store/queries.h"
#include "store/settle.h"
#include "store/shared_enqueue.h"
#include "store/transaction.h"

namespace faultline {
namespace {

/// Of a verb: it has been carried out, and in which way is not known.
template <class Call>
auto change(const Call& call) {
  return store::answer_to(ErrorCode::outcome_unknown, call);
}

template <class Call>
auto look(const Call& call) {
  return store::answer_to(ErrorCode::internal, call);
}

Expected<void> none_or(std::optional<Error> problem) {
  if (problem) return std::unexpected(std::move(*problem));
  return {};
}

}  // namespace

class Store::Impl {
 public:
  explicit Impl(std::unique_ptr<store::Backend> opened)
      : backend(std::move(opened)), claims(*backend), shared_enqueue([this](std::span<const NewJob> jobs) {
          return change([&] {
            // Jobs with keys share nothing, and so none is in conflict.
            return store::enqueue(*backend, jobs, KeyConflict::answer, backend->deadline());
          });
        }) {}

  std::unique_ptr<store::Backend> backend;
  store::Claims claims;
  store::SharedEnqueue shared_enqueue;

  /// Jobs that are put in front of others must not wait for the next look from the beginning.
  void after_settling(std::span<const Settlement> settlements) {
    const auto is_release = [](const Settlement& s) { return s.outcome.kind == Outcome::Kind::released; };
    if (std::ranges::any_of(settlements, is_release)) claims.rewind();
  }
  void after_enqueueing(std::span<const NewJob> jobs) {
    if (std::ranges::any_of(jobs, [](const NewJob& job) { return job.run_at.has_value(); })) claims.rewind();
  }
};

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

Expected<Store> Store::open(const StoreOptions& options) {
  auto backend = look([&] { return store::Backend::open(options); });
  if (!backend) return std::unexpected(std::move(backend.error()));
  return Store{std::make_unique<Impl>(std::move(*backend))};
}

void Store::give_up() { impl_->backend->give_up(); }

Expected<std::vector<Submission>> Store::enqueue(std::span<const NewJob> jobs, KeyConflict on_conflict) {
  store::Backend& backend = *impl_->backend;
  // What cannot be added is told before it shares a commit.
  if (auto checked = look([&] { return none_or(store::check_jobs(backend, jobs, backend.deadline())); });
      !checked)
    return std::unexpected(std::move(checked.error()));
  auto submissions = store::SharedEnqueue::takes(jobs) ? impl_->shared_enqueue.enqueue(jobs) : change([&] {
    return store::enqueue(backend, jobs, on_conflict, backend.deadline());
  });
  impl_->after_enqueueing(jobs);
  return submissions;
}

Expected<Submission> Store::enqueue(const NewJob& job, KeyConflict on_conflict) {
  auto submissions = enqueue(std::span{&job, 1}, on_conflict);
  if (!submissions) return std::unexpected(std::move(submissions.error()));
  return submissions->front();
}

Expected<std::vector<Submission>> Store::enqueue_in(pg_conn* connection, std::span<const NewJob> jobs) {
  const Error no_transaction{.code = ErrorCode::invalid_argument,
                             .message = "the connection has no open transaction",
                             .hint = "BEGIN one first; a job that needs none is added with enqueue"};
  if (connection == nullptr) return std::unexpected(no_transaction);
  pg::Connection borrowed = pg::Connection::borrow(connection);
  if (!borrowed.in_transaction()) return std::unexpected(no_transaction);
  return change(
      [&] { return store::enqueue_in(*impl_->backend, borrowed, jobs, impl_->backend->deadline()); });
}

Expected<std::size_t> Store::enqueue_bulk(const std::function<std::optional<NewJob>()>& next) {
  return change([&] { return store::enqueue_bulk(*impl_->backend, next); });
}

Expected<std::vector<ClaimedJob>> Store::claim(const ClaimRequest& request) {
  return change([&] { return impl_->claims.claim(request, impl_->backend->deadline()); });
}

Expected<std::vector<Beat>> Store::heartbeat(std::span<const Lease> leases,
                                             std::optional<std::chrono::milliseconds> extend,
                                             std::span<const Stage> stages) {
  return change(
      [&] { return store::heartbeat(*impl_->backend, leases, extend, stages, impl_->backend->deadline()); });
}

Expected<std::vector<Verdict>> Store::progress(std::span<const ProgressReport> reports) {
  return change([&] { return store::progress(*impl_->backend, reports, impl_->backend->deadline()); });
}

Expected<std::vector<Verdict>> Store::check(std::span<const Lease> leases) {
  return look([&] { return store::check(*impl_->backend, leases, impl_->backend->deadline()); });
}

Expected<std::vector<Verdict>> Store::settle(std::span<const Settlement> settlements) {
  auto verdicts =
      change([&] { return store::settle(*impl_->backend, settlements, impl_->backend->deadline()); });
  impl_->after_settling(settlements);
  return verdicts;
}

Expected<Store::Exchange> Store::exchange(std::span<const Settlement> settlements,
                                          const ClaimRequest& request) {
  impl_->after_settling(settlements);
  return change([&] {
    return store::exchange(*impl_->backend, impl_->claims, settlements, request, impl_->backend->deadline());
  });
}

Expected<std::vector<std::optional<Outcome::Kind>>> Store::resolve(std::span<const Lease> leases) {
  return look([&] { return store::resolve(*impl_->backend, leases, impl_->backend->deadline()); });
}

Expected<Verdict> Store::transact(const Lease& lease, const std::function<Outcome(Transaction&)>& body) {
  return change([&] { return store::transact(*impl_->backend, impl_->claims, lease, body); });
}

Expected<std::vector<Effect>> Store::begin_effects(std::span<const EffectKey> keys) {
  return change([&] { return store::begin_effects(*impl_->backend, keys, impl_->backend->deadline()); });
}

Expected<std::vector<Effect>> Store::record_effects(std::span<const EffectResult> results) {
  return change([&] { return store::record_effects(*impl_->backend, results, impl_->backend->deadline()); });
}

Expected<std::vector<Verdict>> Store::forget_effects(std::span<const EffectKey> keys) {
  return change([&] { return store::forget_effects(*impl_->backend, keys, impl_->backend->deadline()); });
}

Expected<SweepReport> Store::expire_leases(std::size_t jobs_max) {
  return change([&] { return store::expire_leases(*impl_->backend, jobs_max, impl_->backend->deadline()); });
}

Expected<Store::PruneReport> Store::prune(std::size_t limit) {
  return change([&] { return store::prune(*impl_->backend, limit, impl_->backend->deadline()); });
}

Expected<bool> Store::fold_counts() {
  return change([&] { return store::fold_counts(*impl_->backend, impl_->backend->deadline()); });
}

Expected<std::vector<CancelStatus>> Store::cancel(std::span<const JobId> jobs, std::string_view who,
                                                  std::string_view reason, Uuid call) {
  return change(
      [&] { return store::cancel(*impl_->backend, jobs, who, reason, call, impl_->backend->deadline()); });
}

Expected<std::vector<RequeueStatus>> Store::requeue(std::span<const JobId> jobs, std::string_view who,
                                                    Uuid call) {
  auto statuses =
      change([&] { return store::requeue(*impl_->backend, jobs, who, call, impl_->backend->deadline()); });
  impl_->claims.rewind();
  return statuses;
}

Expected<std::vector<PurgeStatus>> Store::purge_dead(std::span<const JobId> jobs, std::string_view who,
                                                     Uuid call) {
  return change(
      [&] { return store::purge_dead(*impl_->backend, jobs, who, call, impl_->backend->deadline()); });
}

Expected<DecideStatus> Store::decide_effect(const EffectFinding& finding, std::string_view who) {
  return change(
      [&] { return store::decide_effect(*impl_->backend, finding, who, impl_->backend->deadline()); });
}

Expected<void> Store::set_queue(std::string_view name, const QueueSettings& settings) {
  return change([&] {
    return store::set_queue(*impl_->backend, name, settings, /*make=*/true, impl_->backend->deadline());
  });
}

Expected<void> Store::change_queue(std::string_view name, const QueueSettings& settings) {
  return change([&] {
    return store::set_queue(*impl_->backend, name, settings, /*make=*/false, impl_->backend->deadline());
  });
}

Expected<QueueDeletion> Store::delete_queue(std::string_view name) {
  return change([&] { return store::delete_queue(*impl_->backend, name, impl_->backend->deadline()); });
}

Expected<std::optional<Job>> Store::job(JobId id) const {
  return look([&] { return store::find_job(*impl_->backend, id, impl_->backend->deadline()); });
}

Expected<std::vector<std::optional<Job>>> Store::jobs(std::span<const JobId> ids, Deadline until) const {
  return look(
      [&] { return store::find_jobs(*impl_->backend, ids, std::min(until, impl_->backend->deadline())); });
}

Expected<std::vector<std::optional<JobState>>> Store::states(std::span<const JobId> ids,
                                                             Deadline until) const {
  return look(
      [&] { return store::find_states(*impl_->backend, ids, std::min(until, impl_->backend->deadline())); });
}

Expected<std::vector<std::optional<std::string>>> Store::queues_of(std::span<const JobId> ids) const {
  return look([&] { return store::find_queues_of(*impl_->backend, ids, impl_->backend->deadline()); });
}

Expected<std::optional<JobHistory>> Store::history(JobId id) const {
  return look([&] { return store::find_history(*impl_->backend, id, impl_->backend->deadline()); });
}

Expected<JobPage> Store::list(const ListRequest& request) const {
  return look([&] { return store::list_jobs(*impl_->backend, request, impl_->backend->deadline()); });
}

Expected<std::vector<StaleWrite>> Store::stale_writes(std::size_t limit,
                                                      std::optional<DatabaseTime> before) const {
  return look(
      [&] { return store::list_stale_writes(*impl_->backend, limit, before, impl_->backend->deadline()); });
}

Expected<std::vector<Queue>> Store::queues() const {
  return look([&] { return store::list_queues(*impl_->backend, impl_->backend->deadline()); });
}

Expected<std::vector<QueueCounts>> Store::counts(const std::optional<std::string>& queue) const {
  return look([&] { return store::count_jobs(*impl_->backend, queue, impl_->backend->deadline()); });
}

Expected<void> Store::check_writable() {
  auto checked = impl_->backend->run(sql::kDatabaseWritable, pg::Params{}.add(std::int16_t{0}),
                                     impl_->backend->deadline());
  if (!checked) return std::unexpected(std::move(checked.error()));
  return {};
}

Expected<DatabaseTime> Store::now() const {
  return look([&] { return store::database_time(*impl_->backend, impl_->backend->deadline()); });
}

}  // namespace faultline
