#include "store/fence.h"

#include <algorithm>

#include "store/rows.h"

namespace faultline::store {
namespace {

/// Larger batches are cut, so that one transaction holds its row locks for a bounded time …
constexpr std::size_t kGroupMax = 1'000;
/// … and the server needs a bounded amount of memory, which is a few times this.
constexpr std::size_t kGroupBytesMax = 16 * 1024 * 1024;

}  // namespace

VerdictReader::VerdictReader(const pg::Result& rows)
    : rows_(rows),
      id_(column_of(rows, "id")),
      status_(column_of(rows, "status")),
      reason_(column_of(rows, "reason")),
      current_token_(column_of(rows, "current_token")),
      current_worker_(column_of(rows, "current_worker")),
      current_state_(column_of(rows, "current_state")) {}

Verdict VerdictReader::read(int row) const {
  const auto status = rows_.get<std::string_view>(row, status_);
  if (status == "busy") return {.status = Verdict::Status::unknown};  // somebody else holds its row
  if (status != "stale") return {.status = Verdict::Status::committed, .repeated = status == "repeated"};
  Verdict verdict{.status = Verdict::Status::stale};
  if (const auto reason = parse_stale_reason(rows_.get<std::string_view>(row, reason_)))
    verdict.stale.reason = *reason;
  if (const auto token = rows_.get<std::optional<std::int64_t>>(row, current_token_))
    verdict.stale.current_token = FenceToken{*token};
  verdict.stale.current_worker = rows_.get<std::optional<std::string>>(row, current_worker_);
  if (const auto state = rows_.get<std::optional<std::string>>(row, current_state_))
    verdict.stale.current_state = parse_job_state(*state);
  return verdict;
}

FencedBatch::FencedBatch(Backend& backend, std::vector<Lease> leases, const std::vector<std::size_t>& bytes)
    : backend_(backend), leases_(std::move(leases)), verdicts_(leases_.size()) {
  std::vector<std::size_t> order(leases_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair{leases_[a].job.bucket(), leases_[a].job} <
           std::pair{leases_[b].job.bucket(), leases_[b].job};
  });
  std::size_t group_bytes = 0;
  for (const std::size_t index : order) {
    const std::size_t item_bytes = bytes.empty() ? 0 : bytes[index];
    const bool fits = !groups_.empty() && groups_.back().size() < kGroupMax &&
                      group_bytes + item_bytes <= kGroupBytesMax &&
                      leases_[groups_.back().back()].job.bucket() == leases_[index].job.bucket();
    if (!fits) {
      groups_.emplace_back();
      group_bytes = 0;
    }
    groups_.back().push_back(index);
    group_bytes += item_bytes;
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

std::optional<std::size_t> FencedBatch::find(const Uuid& job, Indices indices) const {
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

pg::Params FencedBatch::params(std::int16_t bucket, Indices indices) const {
  pg::Params params = fence_params(bucket, indices);
  // Mostly one worker, whose name is then sent once.
  const std::string& first = leases_[indices.front()].worker;
  const bool one_worker =
      std::ranges::all_of(indices, [&](std::size_t i) { return leases_[i].worker == first; });
  params.add_array(pg::Type::text, one_worker ? indices.first(1) : indices,
                   [&](std::size_t i) { return std::string_view{leases_[i].worker}; });
  return params;
}

Expected<std::vector<Verdict>> FencedBatch::run(const pg::Statement& verb, const Call& call, const Read& read,
                                                Deadline deadline) {
  return run_rest(verb, call, read, /*sent=*/false, deadline);
}

Expected<std::vector<Verdict>> FencedBatch::run_rest(const pg::Statement& verb, const Call& call,
                                                     const Read& read, bool sent, Deadline deadline) {
  for (const auto& group : groups_) {
    if (verdicts_[group.front()]) continue;
    if (auto done = run_group(group, verb, call, read, sent, deadline); !done)
      return std::unexpected(std::move(done.error()));
  }
  std::vector<Verdict> verdicts;
  verdicts.reserve(verdicts_.size());
  for (std::optional<Verdict>& verdict : verdicts_) verdicts.push_back(std::move(*verdict));
  return verdicts;
}

Expected<void> FencedBatch::run_group(Indices group, const pg::Statement& verb, const Call& call,
                                      const Read& read, bool sent, Deadline deadline, bool alone) {
  for (;;) {
    pg::Unit unit;
    unit.add(verb, call(leases_[group.front()].job.bucket(), group));
    auto results = backend_.try_run(unit, deadline, partition_);
    if (results) {
      take(results->front(), group, read, sent);
      return {};
    }
    const pg::Errc code = results.error().code;
    const bool time_is_left = Deadline::clock::now() < deadline;
    sent = sent || code == pg::Errc::outcome_unknown;
    if (code == pg::Errc::lock_not_available && time_is_left && group.size() > 1)
      return run_one_by_one(group, verb, call, read, sent, deadline);
    // Somebody holds a row for longer than a verb waits, or the answer was lost.
    const bool again = code == pg::Errc::lock_not_available || code == pg::Errc::outcome_unknown;
    if (!again || !time_is_left || (alone && code == pg::Errc::lock_not_available))
      return leave_open(group, sent, alone, translate(results.error()));
  }
}

Expected<void> FencedBatch::run_one_by_one(Indices group, const pg::Statement& verb, const Call& call,
                                           const Read& read, bool sent, Deadline deadline) {
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (auto done = run_group(group.subspan(i, 1), verb, call, read, sent, deadline, /*alone=*/true); !done)
      return done;
  }
  return {};
}

void FencedBatch::take(const pg::Result& rows, Indices group, const Read& read, bool sent) {
  something_is_written_ = true;
  const VerdictReader verdicts{rows};
  const ReadRow read_row = read ? read(rows) : nullptr;
  for (int row = 0; row < rows.rows(); ++row) {
    const auto index = match_ ? match_(rows, row, group) : find(verdicts.job(row), group);
    if (!index) continue;
    Verdict& verdict = verdicts_[*index].emplace(verdicts.read(row));
    // By an earlier sending of this very call, and nobody was told of that.
    if (sent) verdict.repeated = false;
    if (read_row) read_row(row, *index);
  }
  // A function answers every item. If one does not, then what became of it is not known.
  for (const std::size_t index : group) {
    if (!verdicts_[index]) verdicts_[index] = Verdict{.status = Verdict::Status::unknown};
  }
}

Expected<void> FencedBatch::leave_open(Indices group, bool sent, bool alone, Error error) {
  if (!sent && !something_is_written_ && !alone) return std::unexpected(std::move(error));
  for (const std::size_t index : group) verdicts_[index] = Verdict{.status = Verdict::Status::unknown};
  return {};
}

}  // namespace faultline::store
