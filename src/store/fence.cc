#include "store/fence.h"

#include <algorithm>
#include <map>
#include <set>

#include "sql/statements.h"

namespace faultline::store {
namespace {

/// Larger batches are cut, so that one transaction holds its row locks for a bounded time.
constexpr std::size_t kGroupMax = 1'000;

Stale read_stale(const pg::Result& row_set, int row) {
  Stale stale;
  if (const auto reason = parse_stale_reason(row_set.get<std::string_view>(row, 1))) stale.reason = *reason;
  if (const auto token = row_set.get<std::optional<std::int64_t>>(row, 3))
    stale.current_token = FenceToken{*token};
  stale.current_worker = row_set.get<std::optional<std::string>>(row, 4);
  if (const auto state = row_set.get<std::optional<std::string>>(row, 5))
    stale.current_state = parse_job_state(*state);
  return stale;
}

}  // namespace

FencedBatch::FencedBatch(Backend& backend, std::string_view verb, std::vector<Lease> leases)
    : backend_(backend), verb_(verb), leases_(std::move(leases)), verdicts_(leases_.size()) {
  std::vector<std::size_t> order(leases_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair{leases_[a].job.bucket(), leases_[a].job} <
           std::pair{leases_[b].job.bucket(), leases_[b].job};
  });
  for (const std::size_t index : order) {
    const bool fits = !groups_.empty() && groups_.back().size() < kGroupMax &&
                      leases_[groups_.back().back()].job.bucket() == leases_[index].job.bucket();
    if (!fits) groups_.emplace_back();
    groups_.back().push_back(index);
  }
}

std::optional<Error> FencedBatch::check() const {
  for (const Lease& lease : leases_) {
    if (auto problem = check_lease(lease)) return problem;
    if (lease.job.bucket() < 0 || lease.job.bucket() >= backend_.buckets()) {
      return Error{.code = ErrorCode::invalid_argument,
                   .message = "job " + lease.job.to_string() + " is not of this database",
                   .hint = "its id names a bucket that does not exist here"};
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> FencedBatch::find(Indices indices, const Uuid& job) const {
  const auto job_of = [&](std::size_t index) { return leases_[index].job.value; };
  const auto found = std::ranges::lower_bound(indices, job, {}, job_of);
  if (found == indices.end() || job_of(*found) != job) return std::nullopt;
  return *found;
}

pg::Params FencedBatch::fence_params(std::int16_t bucket, Indices indices) const {
  pg::Params params;
  params.add(bucket);
  params.add_array(pg::Type::uuid, indices, [&](std::size_t i) { return leases_[i].job.value; });
  params.add_array(pg::Type::int8, indices, [&](std::size_t i) { return leases_[i].token.value; });
  params.add_array(pg::Type::uuid, indices, [&](std::size_t i) { return leases_[i].lease_id; });
  return params;
}

Expected<std::vector<Verdict>> FencedBatch::run(const Act& act, const Read& read, Deadline deadline) {
  for (const auto& group : groups_) {
    if (auto done = run_group(group, act, read, deadline); !done)
      return std::unexpected(std::move(done.error()));
  }
  return std::move(verdicts_);
}

Expected<std::vector<Verdict>> FencedBatch::finish(Indices acted, const Act& act, const Read& read,
                                                   Deadline deadline) {
  const std::set<std::size_t> done(acted.begin(), acted.end());
  something_is_written_ = !done.empty();
  for (const auto& group : groups_) {
    std::vector<std::size_t> rest;
    std::ranges::copy_if(group, std::back_inserter(rest), [&](std::size_t i) { return !done.contains(i); });
    if (rest.empty()) continue;
    if (auto judged = judge(rest, sent_before_, deadline); !judged) {
      if (auto left = leave_open(rest, sent_before_, std::move(judged.error())); !left) {
        return std::unexpected(std::move(left.error()));
      }
      continue;
    }
    if (rest.empty()) continue;
    if (auto again = run_group(rest, act, read, deadline); !again)
      return std::unexpected(std::move(again.error()));
  }
  return std::move(verdicts_);
}

Expected<std::vector<std::optional<Verdict>>> FencedBatch::judge_refused(Deadline deadline) {
  std::vector<std::optional<Verdict>> judged(leases_.size());
  for (const auto& group : groups_) {
    std::vector<std::size_t> good = group;
    if (auto done = judge(good, sent_before_, deadline); !done)
      return std::unexpected(std::move(done.error()));
    for (const std::size_t index : group) {
      if (std::ranges::find(good, index) == good.end()) judged[index] = verdicts_[index];
    }
  }
  return judged;
}

Expected<void> FencedBatch::run_group(std::vector<std::size_t> rest, const Act& act, const Read& read,
                                      Deadline deadline) {
  bool resent = sent_before_;
  while (!rest.empty()) {
    pg::Unit unit;
    act(leases_[rest.front()].job.bucket(), rest, unit);
    auto results = backend_.try_run(unit, deadline, partition_);
    if (results) {
      std::vector<std::size_t> acted;
      read(*results, rest, resent, acted);
      something_is_written_ = something_is_written_ || !acted.empty();
      if (acted.size() == rest.size()) return {};
      std::ranges::sort(acted);
      std::erase_if(rest, [&](std::size_t i) { return std::ranges::binary_search(acted, i); });
    } else if (results.error().code == pg::Errc::outcome_unknown) {
      resent = true;
      if (Deadline::clock::now() >= deadline) return leave_open(rest, resent, translate(results.error()));
      continue;
    } else if (results.error().sqlstate != kLeaseExpiredMeanwhile) {
      return leave_open(rest, resent, translate(results.error()));
    }
    if (auto judged = judge(rest, resent, deadline); !judged) {
      return leave_open(rest, resent, std::move(judged.error()));
    }
  }
  return {};
}

Expected<void> FencedBatch::leave_open(Indices rest, bool resent, Error error) {
  if (!resent && !something_is_written_) return std::unexpected(std::move(error));
  for (const std::size_t index : rest) verdicts_[index].status = Verdict::Status::unknown;
  return {};
}

Expected<void> FencedBatch::judge(std::vector<std::size_t>& rest, bool resent, Deadline deadline) {
  const std::int16_t bucket = leases_[rest.front()].job.bucket();
  const auto job_of = [&](std::size_t i) { return leases_[i].job.value; };
  pg::Params jobs;
  jobs.add(bucket).add_array(pg::Type::uuid, rest, job_of);
  pg::Params params = fence_params(bucket, rest);
  params.add_array(pg::Type::text, rest, [&](std::size_t i) { return std::string_view{leases_[i].worker}; });
  params.add(verb_);
  params.begin_array(pg::Type::text);
  for (const std::size_t index : rest) {
    if (outcomes_.empty())
      params.push_null();
    else
      params.push(outcomes_[index]);
  }
  params.end_array().add(resent);

  pg::Unit unit;
  unit.add(sql::kLeasesLock, std::move(jobs)).add(sql::kLeasesJudge, std::move(params));
  auto results = backend_.run(unit, deadline, partition_);
  if (!results) return std::unexpected(std::move(results.error()));

  std::vector<std::size_t> settled;
  const pg::Result& rows = results->back();
  // One job may stand in a batch of effects more than once, and under different leases.
  for (int row = 0; row < rows.rows(); ++row) {
    const Uuid job = rows.get<Uuid>(row, 0);
    const FenceToken token{rows.get<std::int64_t>(row, 7)};
    const Uuid lease_id = rows.get<Uuid>(row, 8);
    for (const std::size_t index : rest) {
      if (job_of(index) != job || leases_[index].token != token || leases_[index].lease_id != lease_id)
        continue;
      if (rows.get<bool>(row, 2)) {
        verdicts_[index] = {.status = Verdict::Status::committed};
      } else if (rows.is_null(row, 1)) {
        continue;
      } else {
        verdicts_[index] = {.status = Verdict::Status::stale, .stale = read_stale(rows, row)};
        if (rows.get<std::optional<bool>>(row, 6).value_or(false)) open_cancellations_.push_back(index);
      }
      settled.push_back(index);
    }
  }
  something_is_written_ = something_is_written_ || !settled.empty();
  std::ranges::sort(settled);
  std::erase_if(rest, [&](std::size_t i) { return std::ranges::binary_search(settled, i); });
  return {};
}

}  // namespace faultline::store
