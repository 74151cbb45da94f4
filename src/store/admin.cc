#include "store/admin.h"

#include <map>
#include <set>

#include "sql/statements.h"
#include "store/by_bucket.h"

namespace faultline::store {
namespace {

template <class Status>
std::vector<Status> in_order(std::span<const JobId> jobs, const std::map<JobId, Status>& found,
                             Status otherwise) {
  std::vector<Status> statuses;
  statuses.reserve(jobs.size());
  for (const JobId& job : jobs) {
    const auto it = found.find(job);
    statuses.push_back(it == found.end() ? otherwise : it->second);
  }
  return statuses;
}

/// Requeues jobs of one bucket, and notes their queues. Returns those that somebody else brought back at the
/// same moment: the next look finds them live.
Expected<std::vector<JobId>> requeue_some(Backend& backend, std::int16_t bucket,
                                          const std::vector<JobId>& ids, std::string_view who,
                                          std::map<JobId, RequeueStatus>& found,
                                          std::set<std::string>& due_queues, Deadline deadline) {
  pg::Unit unit;
  unit.add(sql::kLedgerHold, id_params(bucket, ids));
  unit.add(sql::kJobsRequeue, id_params(bucket, ids).add(who));
  unit.add(sql::kJobsRequeueFinished, id_params(bucket, ids).add(who));
  auto results = backend.try_run(unit, deadline);
  // The ledger lets one of two through, the other looks again.
  while (!results && Deadline::clock::now() < deadline &&
         (results.error().code == pg::Errc::unique_violation ||
          results.error().code == pg::Errc::outcome_unknown)) {
    results = backend.try_run(unit, deadline);
  }
  if (!results) return std::unexpected(translate(results.error()));
  std::vector<JobId> taken;
  const auto note = [&](const pg::Result& rows, int row, RequeueStatus status) {
    found[JobId{rows.get<Uuid>(row, 0)}] = status;
    if (status == RequeueStatus::requeued) due_queues.insert(rows.get<std::string>(row, 3));
  };
  const pg::Result& finished = results->back();
  for (int row = 0; row < finished.rows(); ++row) {
    if (finished.get<bool>(row, 1))
      note(finished, row, RequeueStatus::token_exhausted);
    else if (finished.get<bool>(row, 2))
      note(finished, row, RequeueStatus::requeued);
    else
      taken.emplace_back(finished.get<Uuid>(row, 0));
  }
  const pg::Result& live = (*results)[1];
  for (int row = 0; row < live.rows(); ++row) {
    note(live, row,
         live.get<bool>(row, 1)   ? RequeueStatus::live
         : live.get<bool>(row, 2) ? RequeueStatus::token_exhausted
                                  : RequeueStatus::requeued);
  }
  return taken;
}

}  // namespace

Expected<std::vector<CancelStatus>> cancel(Backend& backend, std::span<const JobId> jobs,
                                           std::string_view who, std::string_view reason, Deadline deadline) {
  if (auto problem = check_name("name of who cancels", who)) return std::unexpected(std::move(*problem));
  std::map<JobId, CancelStatus> found;
  for (const auto& [bucket, ids] : by_bucket(backend, jobs)) {
    pg::Unit unit;
    unit.add(sql::kJobsCancel, id_params(bucket, ids).add(who).add(storable_text(reason)));
    unit.add(sql::kJobsKnown, id_params(bucket, ids));
    auto results = backend.run(unit, deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    const pg::Result& known = results->back();
    for (int row = 0; row < known.rows(); ++row)
      found[JobId{known.get<Uuid>(row, 0)}] = CancelStatus::finished;
    const pg::Result& live = results->front();
    for (int row = 0; row < live.rows(); ++row) {
      found[JobId{live.get<Uuid>(row, 0)}] = live.get<bool>(row, 2)   ? CancelStatus::token_exhausted
                                             : live.get<bool>(row, 1) ? CancelStatus::requested
                                                                      : CancelStatus::cancelled;
    }
  }
  return in_order(jobs, found, CancelStatus::not_found);
}

Expected<std::vector<RequeueStatus>> requeue(Backend& backend, std::span<const JobId> jobs,
                                             std::string_view who, Deadline deadline) {
  if (auto problem = check_name("name of who requeues", who)) return std::unexpected(std::move(*problem));
  std::map<JobId, RequeueStatus> found;
  std::set<std::string> due_queues;
  for (auto& [bucket, ids] : by_bucket(backend, jobs)) {
    while (!ids.empty()) {
      auto taken = requeue_some(backend, bucket, ids, who, found, due_queues, deadline);
      if (!taken) return std::unexpected(std::move(taken.error()));
      ids = std::move(*taken);
    }
  }
  backend.announce(due_queues, deadline);
  return in_order(jobs, found, RequeueStatus::not_found);
}

Expected<std::vector<PurgeStatus>> purge_dead(Backend& backend, std::span<const JobId> jobs,
                                              std::string_view who, Deadline deadline) {
  if (auto problem = check_name("name of who purges", who)) return std::unexpected(std::move(*problem));
  std::map<JobId, PurgeStatus> found;
  for (const auto& [bucket, ids] : by_bucket(backend, jobs)) {
    pg::Unit unit;
    unit.add(sql::kJobsPurge, id_params(bucket, ids).add(who));
    unit.add(sql::kJobsKnown, id_params(bucket, ids));
    auto results = backend.run(unit, deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    const pg::Result& known = results->back();
    for (int row = 0; row < known.rows(); ++row)
      found[JobId{known.get<Uuid>(row, 0)}] = PurgeStatus::not_dead;
    const pg::Result& live = results->front();
    for (int row = 0; row < live.rows(); ++row) {
      if (live.get<bool>(row, 1))
        found[JobId{live.get<Uuid>(row, 0)}] = PurgeStatus::purged;
      else if (live.get<bool>(row, 2))
        found[JobId{live.get<Uuid>(row, 0)}] = PurgeStatus::token_exhausted;
    }
  }
  return in_order(jobs, found, PurgeStatus::not_found);
}

Expected<void> set_queue(Backend& backend, std::string_view name, const QueueSettings& settings,
                         Deadline deadline) {
  if (auto problem = check_queue(name, settings)) return std::unexpected(std::move(*problem));
  const auto ms32 = [](const std::optional<std::chrono::milliseconds>& value) -> std::optional<std::int32_t> {
    return value ? std::optional{static_cast<std::int32_t>(value->count())} : std::nullopt;
  };
  const auto ms64 = [](const std::optional<std::chrono::milliseconds>& value) -> std::optional<std::int64_t> {
    return value ? std::optional<std::int64_t>{value->count()} : std::nullopt;
  };
  // Every bucket has its own row, so that a claim finds it where its jobs are.
  pg::Unit unit;
  for (int bucket = 0; bucket < backend.buckets(); ++bucket) {
    pg::Params params;
    params.add(static_cast<std::int16_t>(bucket)).add(name).add(settings.paused);
    params.add(std::optional<std::int32_t>{settings.running_max}).add(ms32(settings.lease_ttl));
    params.add(std::optional<std::int32_t>{settings.attempts_max});
    params.add(ms32(settings.backoff_base)).add(ms32(settings.backoff_max));
    params.add(ms64(settings.retention)).add(ms64(settings.key_retention));
    unit.add(sql::kQueuesSet, std::move(params));
  }
  // What waited while the queue was paused or full may go on now.
  const bool opens = settings.paused == false || settings.running_max;
  if (opens) backend.announcer().announce({std::string{name}}, Announcer::Commit::at_once, unit);
  if (auto set = backend.run(unit, deadline); !set) return std::unexpected(std::move(set.error()));
  backend.remember_queue(name);
  return {};
}

}  // namespace faultline::store
