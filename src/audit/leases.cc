#include "audit/leases.h"

#include <algorithm>
#include <map>

#include "sql/statements.h"
#include "store/answer.h"
#include "store/backend.h"

namespace faultline::audit {
namespace {

WorkerLeases read(const pg::Result& rows, int row) {
  return {.worker = rows.get<std::string>(row, 0),
          .running = rows.get<std::int64_t>(row, 1),
          .queues = rows.get<std::vector<std::string>>(row, 2),
          .oldest_claim = rows.get<DatabaseTime>(row, 3),
          .first_expiry = rows.get<DatabaseTime>(row, 4)};
}

void add(WorkerLeases& all, const WorkerLeases& more) {
  all.running += more.running;
  all.oldest_claim = std::min(all.oldest_claim, more.oldest_claim);
  all.first_expiry = std::min(all.first_expiry, more.first_expiry);
  for (const std::string& queue : more.queues) {
    if (std::ranges::find(all.queues, queue) == all.queues.end()) all.queues.push_back(queue);
  }
}

Expected<std::vector<WorkerLeases>> read_all(pg::Connection& connection, std::size_t workers_max,
                                             Deadline until) {
  auto meta = connection.exec(sql::kMetaGet, pg::Params{}.add(std::int16_t{0}), until);
  if (!meta) return std::unexpected(store::translate(meta.error()));
  const auto buckets = meta->get<std::int16_t>(0, 0);
  std::map<std::string, WorkerLeases> workers;
  for (std::int16_t bucket = 0; bucket < buckets; ++bucket) {
    auto rows = connection.exec(sql::kLeasesByWorker,
                                pg::Params{}.add(bucket).add(static_cast<std::int64_t>(workers_max)), until);
    if (!rows) return std::unexpected(store::translate(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      WorkerLeases leases = read(*rows, row);
      const auto [at, is_new] = workers.try_emplace(leases.worker, leases);
      if (!is_new) add(at->second, leases);
    }
  }
  std::vector<WorkerLeases> result;
  for (auto& [worker, leases] : workers) result.push_back(std::move(leases));
  std::ranges::stable_sort(result, {}, &WorkerLeases::first_expiry);
  return result;
}

}  // namespace

Expected<std::vector<WorkerLeases>> leases_by_worker(pg::Connection& connection, std::size_t workers_max,
                                                     Deadline until) {
  return store::answer_to(ErrorCode::internal, [&] { return read_all(connection, workers_max, until); });
}

}  // namespace faultline::audit
