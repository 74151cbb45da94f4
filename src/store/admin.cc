#include "store/admin.h"

#include <map>
#include <set>

#include "sql/statements.h"
#include "store/by_bucket.h"
#include "store/rows.h"

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

/// Runs an operator's verb bucket by bucket and reads the status of each job. A verb that is sent again,
/// because its answer was lost, names the same call, and so is told what it did.
template <class Status, class Parse, class Add>
Expected<std::vector<Status>> act(Backend& backend, std::span<const JobId> jobs, const pg::Statement& verb,
                                  const Add& add, const Parse& parse, Status otherwise, Deadline deadline,
                                  std::set<std::string>* due_queues = nullptr) {
  std::map<JobId, Status> found;
  for (const auto& [bucket, ids] : by_bucket(backend, jobs)) {
    pg::Params params = id_params(bucket, ids);
    add(params);
    auto rows = backend.run(verb, std::move(params), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      found[JobId{rows->get<Uuid>(row, 0)}] = parse(rows->get<std::string_view>(row, 1));
      if (due_queues == nullptr) continue;
      if (auto queue = rows->get<std::optional<std::string>>(row, 2)) due_queues->insert(std::move(*queue));
    }
  }
  return in_order(jobs, found, otherwise);
}

Uuid named(Uuid call) { return call.is_nil() ? Uuid::random() : call; }

CancelStatus parse_cancel(std::string_view word) {
  return word == "cancelled"   ? CancelStatus::cancelled
         : word == "requested" ? CancelStatus::requested
         : word == "finished"  ? CancelStatus::finished
         : word == "exhausted" ? CancelStatus::token_exhausted
                               : CancelStatus::not_found;
}

RequeueStatus parse_requeue(std::string_view word) {
  return word == "requeued"    ? RequeueStatus::requeued
         : word == "live"      ? RequeueStatus::live
         : word == "exhausted" ? RequeueStatus::token_exhausted
                               : RequeueStatus::not_found;
}

PurgeStatus parse_purge(std::string_view word) {
  return word == "purged"      ? PurgeStatus::purged
         : word == "not_dead"  ? PurgeStatus::not_dead
         : word == "exhausted" ? PurgeStatus::token_exhausted
                               : PurgeStatus::not_found;
}

DecideStatus parse_decision(std::string_view word) {
  return word == "decided"     ? DecideStatus::decided
         : word == "otherwise" ? DecideStatus::otherwise
         : word == "recorded"  ? DecideStatus::recorded
         : word == "changed"   ? DecideStatus::changed
         : word == "running"   ? DecideStatus::running
                               : DecideStatus::not_found;
}

std::optional<Error> check_finding(const EffectFinding& finding, const Limits& limits) {
  if (auto problem = check_effect_key(finding.key)) return problem;
  if (finding.reason.empty())
    return Error{.code = ErrorCode::invalid_argument,
                 .message = "a decision about an effect has no reason",
                 .hint = "say how it is known whether the effect happened"};
  if (!finding.happened && !finding.result.empty())
    return Error{.code = ErrorCode::invalid_argument,
                 .message = "an effect that did not happen has a result",
                 .hint = "give a result only to one that happened"};
  return check_result(finding.result, limits);
}

/// The token under which an effect on record was begun.
Expected<std::optional<FenceToken>> token_of(Backend& backend, const EffectFinding& finding,
                                             Deadline deadline) {
  if (finding.begun_under) return finding.begun_under;
  auto rows =
      backend.read(sql::kJobEffects, pg::Params{}.add(finding.job.bucket()).add(finding.job.value), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  const int key = column_of(*rows, "key");
  const int token = column_of(*rows, "token");
  for (int row = 0; row < rows->rows(); ++row) {
    if (rows->get<std::string_view>(row, key) == finding.key)
      return FenceToken{rows->get<std::int64_t>(row, token)};
  }
  return std::nullopt;
}

}  // namespace

Expected<std::vector<CancelStatus>> cancel(Backend& backend, std::span<const JobId> jobs,
                                           std::string_view who, std::string_view reason, Uuid call,
                                           Deadline deadline) {
  if (auto problem = check_name("name of who cancels", who)) return std::unexpected(std::move(*problem));
  call = named(call);
  return act(
      backend, jobs, sql::kJobsCancel,
      [&](pg::Params& params) { params.add(who).add(storable_text(reason)).add(call); }, parse_cancel,
      CancelStatus::not_found, deadline);
}

Expected<std::vector<RequeueStatus>> requeue(Backend& backend, std::span<const JobId> jobs,
                                             std::string_view who, Uuid call, Deadline deadline) {
  if (auto problem = check_name("name of who requeues", who)) return std::unexpected(std::move(*problem));
  call = named(call);
  std::set<std::string> due_queues;
  auto statuses = act(
      backend, jobs, sql::kJobsRequeue, [&](pg::Params& params) { params.add(who).add(call); }, parse_requeue,
      RequeueStatus::not_found, deadline, &due_queues);
  backend.announce(due_queues, deadline);
  return statuses;
}

Expected<std::vector<PurgeStatus>> purge_dead(Backend& backend, std::span<const JobId> jobs,
                                              std::string_view who, Uuid call, Deadline deadline) {
  if (auto problem = check_name("name of who purges", who)) return std::unexpected(std::move(*problem));
  call = named(call);
  return act(
      backend, jobs, sql::kJobsPurge, [&](pg::Params& params) { params.add(who).add(call); }, parse_purge,
      PurgeStatus::not_found, deadline);
}

Expected<DecideStatus> decide_effect(Backend& backend, const EffectFinding& finding, std::string_view who,
                                     Deadline deadline) {
  if (auto problem = check_name("name of who decides", who)) return std::unexpected(std::move(*problem));
  if (auto problem = check_finding(finding, backend.limits())) return std::unexpected(std::move(*problem));
  // Found out before the first sending, so that all sendings are about the same announcement.
  const auto token = token_of(backend, finding, deadline);
  if (!token) return std::unexpected(token.error());
  if (!*token) return DecideStatus::not_found;
  pg::Params params;
  params.add(finding.job.bucket()).add(finding.job.value).add(finding.key).add((*token)->value);
  params.add(finding.happened);
  if (finding.happened)
    params.add(std::as_bytes(std::span{finding.result}));
  else
    params.add_null(pg::Type::bytea);
  params.add(who).add(storable_text(finding.reason));
  auto rows = backend.run(sql::kEffectDecide, std::move(params), deadline);
  if (!rows) return std::unexpected(std::move(rows.error()));
  return parse_decision(rows->get<std::string_view>(0, 0));
}

Expected<QueueDeletion> delete_queue(Backend& backend, std::string_view name, Deadline deadline) {
  if (auto problem = check_name("queue", name)) return std::unexpected(std::move(*problem));
  const auto in_all_buckets = [&](bool act) {
    pg::Unit unit;
    for (int bucket = 0; bucket < backend.buckets(); ++bucket)
      unit.add(sql::kQueueDelete, pg::Params{}.add(static_cast<std::int16_t>(bucket)).add(name).add(act));
    return backend.run(unit, deadline);
  };
  const auto looked = in_all_buckets(false);
  if (!looked) return std::unexpected(looked.error());
  QueueDeletion deletion{.status = QueueDeletion::Status::not_found};
  for (const pg::Result& rows : *looked) {
    if (rows.get<bool>(0, 0)) deletion.status = QueueDeletion::Status::deleted;
    deletion.live += rows.get<std::int64_t>(0, 1);
  }
  if (deletion.status == QueueDeletion::Status::not_found) return deletion;
  if (deletion.live > 0) {
    deletion.status = QueueDeletion::Status::has_jobs;
    return deletion;
  }
  if (auto deleted = in_all_buckets(true); !deleted) return std::unexpected(std::move(deleted.error()));
  backend.forget_queue(name);
  return deletion;
}

Expected<void> set_queue(Backend& backend, std::string_view name, const QueueSettings& settings, bool make,
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
    params.add(ms64(settings.dead_retention)).add(make);
    unit.add(sql::kQueuesSet, std::move(params));
  }
  // What waited while the queue was paused or full may go on now.
  const bool opens = settings.paused == false || settings.running_max;
  if (opens) backend.announcer().announce({std::string{name}}, Announcer::Commit::at_once, unit);
  if (auto set = backend.run(unit, deadline); !set) {
    if (set.error().code == ErrorCode::unknown_queue) return std::unexpected(unknown_queue(name));
    return std::unexpected(std::move(set.error()));
  }
  backend.remember_queue(name);
  return {};
}

}  // namespace faultline::store
