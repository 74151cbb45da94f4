#include "store/maintenance.h"

#include "sql/statements.h"

namespace faultline::store {
namespace {

std::int16_t bucket_at(int i) { return static_cast<std::int16_t>(i); }

}  // namespace

Expected<SweepReport> expire_leases(Backend& backend, std::size_t claims_max, Deadline deadline) {
  SweepReport report;
  const auto limit = static_cast<std::int64_t>(claims_max);
  std::set<std::string> due_queues;
  for (int i = 0; i < backend.buckets(); ++i) {
    auto rows = backend.run(sql::kLeasesExpire, pg::Params{}.add(bucket_at(i)).add(limit), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    report.more = report.more || rows->get<std::int64_t>(0, 0) == limit;
    for (int row = 0; row < rows->rows(); ++row) {
      if (rows->is_null(row, 1)) continue;
      report.expired.push_back(
          {.job = JobId{rows->get<Uuid>(row, 1)},
           .token = FenceToken{rows->get<std::int64_t>(row, 2)},
           .worker = rows->get<std::string>(row, 3),
           .queue = rows->get<std::string>(row, 4),
           .attempt = static_cast<int>(rows->get<std::int64_t>(row, 5)),
           .next_state = parse_job_state(rows->get<std::string_view>(row, 6)).value_or(JobState::available),
           .expired_at = rows->get<DatabaseTime>(row, 7),
           .traceparent = rows->get<std::optional<std::string>>(row, 9)});
      if (rows->get<bool>(row, 8)) due_queues.insert(report.expired.back().queue);
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
    unit.add(sql::kLedgerPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    unit.add(sql::kKeysPrune, pg::Params{}.add(bucket_at(i)).add(at_most));
    auto results = backend.run(unit, deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    report.jobs += static_cast<std::size_t>((*results)[0].get<std::int64_t>(0, 0));
    report.keys += static_cast<std::size_t>((*results)[1].get<std::int64_t>(0, 0));
  }
  return report;
}

Expected<void> fold_counts(Backend& backend, Deadline deadline) {
  for (int i = 0; i < backend.buckets(); ++i) {
    auto folded = backend.run(sql::kTalliesFold, pg::Params{}.add(bucket_at(i)), deadline);
    if (!folded) return std::unexpected(std::move(folded.error()));
  }
  return {};
}

}  // namespace faultline::store
