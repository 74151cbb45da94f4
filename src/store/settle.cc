#include "store/settle.h"

#include <algorithm>

#include "base/words.h"
#include "sql/statements.h"
#include "store/rows.h"

namespace faultline::store {
namespace {

using Indices = FencedBatch::Indices;

template <class Range, class Projection>
std::vector<Lease> leases_of(const Range& range, Projection projection) {
  std::vector<Lease> leases;
  leases.reserve(range.size());
  for (const auto& item : range) leases.push_back(projection(item));
  return leases;
}

std::vector<std::size_t> bytes_of(std::span<const Settlement> settlements) {
  std::vector<std::size_t> bytes;
  bytes.reserve(settlements.size());
  for (const Settlement& settlement : settlements) {
    const auto size = [](const std::optional<std::string>& text) { return text ? text->size() : 0; };
    bytes.push_back(size(settlement.outcome.result) + size(settlement.outcome.error));
  }
  return bytes;
}

/// The problem with a batch that has one entry per job.
std::optional<Error> check_batch(const FencedBatch& batch) {
  if (auto problem = batch.check()) return problem;
  // Equal jobs are neighbours, also where a large batch is cut into groups.
  const Lease* last = nullptr;
  for (const auto& group : batch.groups()) {
    for (const std::size_t index : group) {
      const Lease& lease = batch.lease(index);
      if (last != nullptr && last->job == lease.job) {
        return Error{.code = ErrorCode::invalid_argument,
                     .message = "job " + lease.job.to_string() + " stands twice in the batch",
                     .hint = "a batch has one entry per job"};
      }
      last = &lease;
    }
  }
  return std::nullopt;
}

}  // namespace

SettleBatch::SettleBatch(Backend& backend, std::span<const Settlement> settlements)
    : backend_(backend),
      settlements_(settlements),
      batch_(backend, leases_of(settlements, [](const Settlement& s) { return s.lease; }),
             bytes_of(settlements)) {}

std::optional<Error> SettleBatch::check() const {
  for (const Settlement& settlement : settlements_) {
    if (auto problem = check_outcome(settlement.outcome, backend_.limits())) return problem;
  }
  return check_batch(batch_);
}

void SettleBatch::add_outcomes(pg::Params& params, Indices indices) const {
  // Mostly all the same, and then sent once.
  const auto kind = [&](std::size_t i) { return settlements_[i].outcome.kind; };
  const bool one_kind =
      std::ranges::all_of(indices, [&](std::size_t i) { return kind(i) == kind(indices.front()); });
  params.add_array(pg::Type::text, one_kind ? indices.first(1) : indices,
                   [&](std::size_t i) { return to_string(kind(i)); });
}

void SettleBatch::add_results_and_errors(pg::Params& params, Indices indices) const {
  const auto outcome = [&](std::size_t i) -> const Outcome& { return settlements_[i].outcome; };
  const auto any = [&](auto member) {
    return std::ranges::any_of(indices, [&](std::size_t i) { return (outcome(i).*member).has_value(); });
  };
  // Most jobs give no result, and then nothing is sent.
  if (any(&Outcome::result)) {
    params.begin_array(pg::Type::bytea);
    for (const std::size_t i : indices) {
      if (outcome(i).result)
        params.push(std::as_bytes(std::span{*outcome(i).result}));
      else
        params.push_null();
    }
    params.end_array();
  } else {
    params.add_null(pg::Type::bytea_array);
  }
  if (any(&Outcome::error)) {
    params.add_array(pg::Type::text, indices, [&](std::size_t i) -> std::optional<std::string> {
      return outcome(i).error ? std::optional{storable_text(*outcome(i).error)} : std::nullopt;
    });
  } else {
    params.add_null(pg::Type::text_array);
  }
}

pg::Params SettleBatch::params(std::int16_t bucket, Indices indices) const {
  pg::Params params = batch_.params(bucket, indices);
  add_outcomes(params, indices);
  add_results_and_errors(params, indices);
  const auto delay = [&](std::size_t i) -> std::optional<std::int64_t> {
    const auto& given = settlements_[i].outcome.delay;
    return given ? std::optional<std::int64_t>{given->count()} : std::nullopt;
  };
  if (std::ranges::any_of(indices, [&](std::size_t i) { return delay(i).has_value(); }))
    params.add_array(pg::Type::int8, indices, delay);
  else
    params.add_null(pg::Type::int8_array);
  const auto writer = [&](std::size_t i) -> const std::string& { return settlements_[i].written_by; };
  if (std::ranges::any_of(indices, [&](std::size_t i) { return !writer(i).empty(); }))
    params.add_array(pg::Type::text, indices, [&](std::size_t i) {
      return writer(i).empty() ? std::nullopt : std::optional<std::string_view>{writer(i)};
    });
  else
    params.add_null(pg::Type::text_array);
  return params;
}

pg::Params SettleBatch::judge_params(std::int16_t bucket, Indices indices, bool sent) const {
  pg::Params params = batch_.params(bucket, indices);
  params.add_array(pg::Type::text, indices,
                   [&](std::size_t i) { return verb_of(settlements_[i].outcome.kind); });
  if (sent)
    add_outcomes(params, indices);
  else
    params.add_null(pg::Type::text_array);
  add_results_and_errors(params, indices);
  return params;
}

FencedBatch::ReadRow SettleBatch::read(const pg::Result& rows) {
  return [this, &rows, due_queue = column_of(rows, "due_queue")](int row, std::size_t) {
    if (!rows.is_null(row, due_queue)) due_queues_.insert(rows.get<std::string>(row, due_queue));
  };
}

Expected<std::vector<Verdict>> SettleBatch::run(bool sent, Deadline deadline) {
  auto verdicts = batch_.run_rest(
      sql::kJobsSettle, [this](std::int16_t bucket, Indices indices) { return params(bucket, indices); },
      [this](const pg::Result& rows) { return read(rows); }, sent, deadline);
  backend_.announce(due_queues_, deadline);
  return verdicts;
}

Expected<std::vector<Verdict>> settle(Backend& backend, std::span<const Settlement> settlements,
                                      Deadline deadline) {
  SettleBatch batch{backend, settlements};
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  return batch.run(/*sent=*/false, deadline);
}

Expected<Store::Exchange> exchange(Backend& backend, Claims& claims, std::span<const Settlement> settlements,
                                   const ClaimRequest& request, Deadline deadline) {
  if (auto problem = check_claim(request)) return std::unexpected(std::move(*problem));
  SettleBatch batch{backend, settlements};
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  // Before anything is settled: after that, an error could no longer say that nothing was changed.
  if (auto problem = backend.check_queue_exists(request.queue, deadline))
    return std::unexpected(std::move(*problem));

  Store::Exchange done;
  bool look_further = true;
  bool sent = false;
  if (batch.fenced().groups().size() == 1) {
    const auto& group = batch.fenced().groups().front();
    const std::int16_t bucket = batch.fenced().lease(group.front()).job.bucket();
    pg::Unit unit;
    unit.add(sql::kJobsSettle, batch.params(bucket, group));
    // Who has the turn at a queue with a cap may keep it for long, and the settlements do not wait for that.
    const Claims::Step step = claims.add_step(request, bucket, request.limit, /*wait=*/false, unit);
    auto results = backend.try_run(unit, deadline);
    if (!results) claims.rewind();
    if (results) {
      batch.fenced().take(results->front(), group, [&](const pg::Result& rows) { return batch.read(rows); });
      const auto claimed = claims.read_step(request, step, results->back(), done.claimed);
      using Next = Claims::Next;
      look_further = claimed != Next::enough &&
                     (backend.buckets() > 1 || claimed == Next::look_again || claimed == Next::busy);
    } else if (results.error().code == pg::Errc::outcome_unknown) {
      sent = true;
    } else if (results.error().code != pg::Errc::lock_not_available) {
      return std::unexpected(translate(results.error()));
    }
  }
  auto verdicts = batch.run(sent, deadline);
  if (!verdicts) return std::unexpected(std::move(verdicts.error()));
  done.verdicts = std::move(*verdicts);
  if (look_further && done.claimed.size() < request.limit) {
    // The settlements are through, and that must be told; if this fails, the next claim says why.
    auto claimed = claims.claim_from_buckets(request, done.claimed, deadline);
    if (!claimed && settlements.empty()) return std::unexpected(std::move(claimed.error()));
  }
  return done;
}

Expected<std::vector<Beat>> heartbeat(Backend& backend, std::span<const Lease> leases,
                                      std::optional<std::chrono::milliseconds> extend,
                                      std::span<const Stage> stages, Deadline deadline) {
  if (extend) {
    if (auto problem = check_extend(*extend)) return std::unexpected(std::move(*problem));
  }
  if (!stages.empty() && stages.size() != leases.size())
    return std::unexpected(Error{.code = ErrorCode::invalid_argument,
                                 .message = "there are not as many stages as leases",
                                 .hint = "give one for each, or none"});
  FencedBatch batch{backend, {leases.begin(), leases.end()}};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  batch.use_partition(Backend::Partition::heartbeat);
  std::vector<Beat> beats(leases.size());
  auto verdicts = batch.run(
      sql::kLeasesRenew,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = batch.params(bucket, indices);
        if (extend)
          params.add_array(pg::Type::int8, indices,
                           [&](std::size_t) { return std::int64_t{extend->count()}; });
        else
          params.add_null(pg::Type::int8_array);
        params.add(std::string_view{extend ? "extend" : "heartbeat"});
        if (stages.empty()) {
          params.add_null(pg::Type::boolean_array).add_null(pg::Type::boolean_array);
        } else {
          params.add_array(pg::Type::boolean, indices,
                           [&](std::size_t i) { return stages[i] != Stage::waiting; });
          params.add_array(pg::Type::boolean, indices,
                           [&](std::size_t i) { return stages[i] == Stage::alone; });
        }
        return params;
      },
      [&](const pg::Result& rows) -> FencedBatch::ReadRow {
        return [&, expires_at = column_of(rows, "lease_expires_at"),
                cancel_requested = column_of(rows, "cancel_requested"),
                cancel_reason = column_of(rows, "cancel_reason")](int row, std::size_t index) {
          if (rows.is_null(row, expires_at)) return;  // it was refused
          beats[index] = {.status = rows.get<bool>(row, cancel_requested) ? Beat::Status::cancel_requested
                                                                          : Beat::Status::renewed,
                          .lease_expires_at = rows.get<DatabaseTime>(row, expires_at),
                          .cancel_reason = rows.get<std::optional<std::string>>(row, cancel_reason)};
        };
      },
      deadline);
  if (!verdicts) return std::unexpected(std::move(verdicts.error()));
  for (std::size_t i = 0; i < beats.size(); ++i) {
    if ((*verdicts)[i].status == Verdict::Status::unknown) beats[i] = {.status = Beat::Status::unknown};
    if ((*verdicts)[i].status != Verdict::Status::stale) continue;
    beats[i] = {.status = Beat::Status::lost, .stale = std::move((*verdicts)[i].stale)};
  }
  return beats;
}

Expected<std::vector<Verdict>> progress(Backend& backend, std::span<const ProgressReport> reports,
                                        Deadline deadline) {
  for (const ProgressReport& report : reports) {
    if (auto problem = check_progress(report)) return std::unexpected(std::move(*problem));
  }
  FencedBatch batch{backend, leases_of(reports, [](const ProgressReport& r) { return r.lease; })};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  return batch.run(
      sql::kLeasesProgress,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = batch.params(bucket, indices);
        params.add_array(pg::Type::float8, indices, [&](std::size_t i) { return reports[i].fraction; });
        params.add_array(pg::Type::text, indices,
                         [&](std::size_t i) { return storable_text(reports[i].note); });
        return params;
      },
      /*read=*/nullptr, deadline);
}

Expected<std::vector<Verdict>> check(Backend& backend, std::span<const Lease> leases, Deadline deadline) {
  FencedBatch batch{backend, {leases.begin(), leases.end()}};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  return batch.run(
      sql::kWritesJudge,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = batch.params(bucket, indices);
        params.add_array(pg::Type::text, indices.first(1), [](std::size_t) { return "check"; });
        params.add_null(pg::Type::text_array).add_null(pg::Type::bytea_array).add_null(pg::Type::text_array);
        return params;
      },
      /*read=*/nullptr, deadline);
}

Expected<std::vector<std::optional<Outcome::Kind>>> resolve(Backend& backend, std::span<const Lease> leases,
                                                            Deadline deadline) {
  const FencedBatch batch{backend, {leases.begin(), leases.end()}};
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  std::vector<std::optional<Outcome::Kind>> outcomes(leases.size());
  for (const auto& group : batch.groups()) {
    // Who asks was left in doubt, perhaps by a standby that was not waited for. This commit waits for it.
    pg::Unit unit;
    unit.add(sql::kLeasesFind, batch.fence_params(batch.lease(group.front()).job.bucket(), group));
    unit.add(sql::kCommitMarker, {});
    auto results = backend.run(unit, deadline);
    if (!results) return std::unexpected(std::move(results.error()));
    const pg::Result& rows = results->front();
    for (int row = 0; row < rows.rows(); ++row) {
      const auto index = batch.find(rows.get<Uuid>(row, 0), group);
      if (index) outcomes[*index] = parse_outcome(rows.get<std::string_view>(row, 1));
    }
  }
  return outcomes;
}

}  // namespace faultline::store
