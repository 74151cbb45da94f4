#include "store/maintenance.h"

#include "sql/statements.h"
#include "store/rows.h"

namespace faultline::store {
namespace {

std::int16_t bucket_at(int i) { return static_cast<std::int16_t>(i); }

}  // namespace

Expected<SweepReport> expire_leases(Backend& backend, std::size_t jobs_max, Deadline deadline) {
  SweepReport report;
  const auto limit = static_cast<std::int64_t>(jobs_max);
  std::set<std::string> due_queues;
  for (int i = 0; i < backend.buckets(); ++i) {
    auto rows = backend.run(sql::kLeasesExpire, pg::Params{}.add(bucket_at(i)).add(limit), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    report.more = report.more || rows->get<bool>(0, 0);
    const auto column = [&](std::string_view name) { return column_of(*rows, name); };
    for (int row = 0; row < rows->rows(); ++row) {
      if (rows->is_null(row, column("id"))) continue;
      const JobId job{rows->get<Uuid>(row, column("id"))};
      if (auto problem = rows->get<std::optional<std::string>>(row, column("problem"))) {
        report.problems.push_back(
            {.job = job, .queue = rows->get<std::string>(row, column("queue")), .message = *problem});
        continue;
      }
      report.expired.push_back(
          {.job = job,
           .token = FenceToken{rows->get<std::int64_t>(row, column("token"))},
           .worker = rows->get<std::string>(row, column("worker")),
           .queue = rows->get<std::string>(row, column("queue")),
           .attempt = static_cast<int>(rows->get<std::int64_t>(row, column("attempt"))),
           .next_state = parse_job_state(rows->get<std::string_view>(row, column("next_state")))
                             .value_or(JobState::available),
           .expired_at = rows->get<DatabaseTime>(row, column("lease_expires_at")),
           .traceparent = rows->get<std::optional<std::string>>(row, column("traceparent")),
           .loss = parse_loss(rows->get<std::string_view>(row, column("loss"))).value_or(Loss::shared)});
      if (rows->get<bool>(row, column("due"))) due_queues.insert(report.expired.back().queue);
    }
  }
  backend.announce(due_queues, deadline);
  return report;
}

Expected<Store::PruneReport> prune(Backend& backend, std::size_t limit, Deadline deadline) {
  Store::PruneReport report;
  const auto at_most = static_cast<std::int64_t>(limit);
  for (int i = 0; i < backend.buckets(); ++i) {
    pg::Unit unit;
    unit.add(sql::kJobsPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    unit.add(sql::kDeadPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    unit.add(sql::kKeysPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    unit.add(sql::kStaleWritesPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    auto results = backend.run(unit, deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    report.jobs += static_cast<std::size_t>((*results)[0].get<std::int64_t>(0, 0));
    report.dead += static_cast<std::size_t>((*results)[1].get<std::int64_t>(0, 0));
    report.keys += static_cast<std::size_t>((*results)[2].get<std::int64_t>(0, 0));
    report.stale_writes += static_cast<std::size_t>((*results)[3].get<std::int64_t>(0, 0));
  }
  return report;
}

Expected<bool> fold_counts(Backend& backend, Deadline deadline) {
  constexpr std::int64_t kJobs = 1'000;
  constexpr std::int64_t kDifferences = 10'000;
  bool more = false;
  for (int i = 0; i < backend.buckets(); ++i) {
    auto folded =
        backend.run(sql::kTalliesFold, pg::Params{}.add(bucket_at(i)).add(kJobs).add(kDifferences), deadline);
    if (!folded) return std::unexpected(std::move(folded.error()));
    more = more || folded->get<bool>(0, 0);
  }
  return more;
}

}  // namespace faultline::store
