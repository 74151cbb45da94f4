#include "store/claim.h"

#include <algorithm>
#include <tuple>

#include "sql/statements.h"
#include "store/rows.h"

namespace faultline::store {

Claims::Step Claims::add_step(const ClaimRequest& request, std::int16_t bucket, std::size_t limit, bool wait,
                              pg::Unit& unit) {
  Step step{.bucket = bucket, .limit = limit, .lease_id = Uuid::random()};
  step.begun = ClaimCursor::Clock::now();
  step.scan = cursor_.next_scan(request.queue, bucket, step.begun);
  pg::Params params;
  params.add(bucket)
      .add(request.queue)
      .add(request.worker)
      .add(step.lease_id)
      .add(static_cast<std::int64_t>(limit));
  params.begin_array(pg::Type::int2);
  for (int priority = 0; priority < kPriorities; ++priority) params.push(static_cast<std::int16_t>(priority));
  params.end_array();
  params.add_array(pg::Type::timestamptz, step.scan.since, [](const auto& since) { return since.run_at; });
  params.add_array(pg::Type::uuid, step.scan.since, [](const auto& since) { return since.id; });
  params.add(wait).add(request.ahead);
  if (request.suspects_max)
    params.add(static_cast<std::int64_t>(*request.suspects_max));
  else
    params.add_null(pg::Type::int8);
  unit.add(sql::kJobsClaim, std::move(params));
  return step;
}

Expected<Claims::Next> Claims::read_step(const ClaimRequest& request, const Step& step,
                                         const pg::Result& result, std::vector<ClaimedJob>& jobs) {
  if (result.rows() == 0) return std::unexpected(unknown_queue(request.queue));
  if (result.get<bool>(0, column_of(result, "busy"))) return Next::busy;
  const std::size_t first_job = jobs.size();
  jobs.reserve(first_job + static_cast<std::size_t>(result.rows()));
  const RowReader<ClaimedJob> reader{result, {"lease", "queue"}};
  const int id = column_of(result, "id");
  const int token = column_of(result, "token");
  for (int row = 0; row < result.rows(); ++row) {
    if (result.is_null(row, id)) continue;
    ClaimedJob& job = jobs.emplace_back(reader.read(row));
    job.lease = {.job = JobId{result.get<Uuid>(row, id)},
                 .token = FenceToken{result.get<std::int64_t>(row, token)},
                 .lease_id = step.lease_id,
                 .worker = request.worker};
    job.queue = request.queue;
  }
  // An update gives its rows back in no order that it promises, though mostly in the one they were found in.
  const auto place = [](const ClaimedJob& job) {
    return std::tuple{job.priority, job.run_at, job.lease.job};
  };
  const std::span claimed = std::span{jobs}.subspan(first_job);
  if (!std::ranges::is_sorted(claimed, {}, place)) std::ranges::sort(claimed, {}, place);
  // A claim is bounded in bytes, too, and so are the claims of one call together.
  const bool more = result.get<bool>(0, column_of(result, "more"));
  const bool full = more || jobs.size() - first_job == step.limit;
  const bool again = cursor_.found(request.queue, step.bucket, step.scan, jobs, first_job, full, step.begun,
                                   ClaimCursor::Clock::now());
  if (more) return Next::enough;
  return again ? Next::look_again : Next::done;
}

Expected<Claims::Next> Claims::claim_from(std::int16_t bucket, const ClaimRequest& request,
                                          std::vector<ClaimedJob>& jobs, Deadline deadline) {
  for (;;) {
    pg::Unit unit;
    const Step step = add_step(request, bucket, request.limit - jobs.size(), /*wait=*/true, unit);
    auto results = backend_.try_run(unit, deadline);
    if (!results) {
      // What happened meanwhile may have put jobs in front of others.
      cursor_.rewind();
      // What a lost answer granted is nobody's until its leases run out; the next step claims other jobs.
      if (results.error().code == pg::Errc::outcome_unknown && Deadline::clock::now() < deadline) continue;
      return std::unexpected(translate(results.error()));
    }
    auto next = read_step(request, step, results->back(), jobs);
    // Who keeps the turn for himself for that long leaves nothing to claim for now.
    if (!next || *next != Next::look_again || jobs.size() == request.limit) return next;
  }
}

Expected<void> Claims::claim_from_buckets(const ClaimRequest& request, std::vector<ClaimedJob>& jobs,
                                          Deadline deadline) {
  // Every call begins at another bucket, so that none is always last.
  const unsigned first = turn_.fetch_add(1, std::memory_order_relaxed);
  for (int i = 0; i < backend_.buckets() && jobs.size() < request.limit; ++i) {
    const auto bucket = static_cast<std::int16_t>((first + static_cast<unsigned>(i)) %
                                                  static_cast<unsigned>(backend_.buckets()));
    const auto claimed = claim_from(bucket, request, jobs, deadline);
    if (claimed == Next::enough) return {};
    if (!claimed) {
      // What other buckets gave is in hand and leased: it must reach the worker.
      if (!jobs.empty()) return {};
      return std::unexpected(claimed.error());
    }
  }
  return {};
}

Expected<std::vector<ClaimedJob>> Claims::claim(const ClaimRequest& request, Deadline deadline) {
  if (auto problem = check_claim(request)) return std::unexpected(std::move(*problem));
  std::vector<ClaimedJob> jobs;
  if (auto claimed = claim_from_buckets(request, jobs, deadline); !claimed) {
    return std::unexpected(std::move(claimed.error()));
  }
  return jobs;
}

}  // namespace faultline::store
