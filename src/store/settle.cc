#include "store/settle.h"

#include <algorithm>
#include <set>

#include "base/words.h"
#include "sql/statements.h"

namespace faultline::store {
namespace {

using Indices = FencedBatch::Indices;

bool finishes(const Outcome& outcome) {
  return outcome.kind == Outcome::Kind::succeeded || outcome.kind == Outcome::Kind::cancelled;
}

template <class Range, class Projection>
std::vector<Lease> leases_of(const Range& range, Projection projection) {
  std::vector<Lease> leases;
  leases.reserve(range.size());
  for (const auto& item : range) leases.push_back(projection(item));
  return leases;
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

/// Marks every item whose job a result names.
void read_named(const FencedBatch& batch, std::span<const pg::Result> results, Indices indices,
                std::vector<std::size_t>& acted) {
  for (const pg::Result& result : results) {
    for (int row = 0; row < result.rows(); ++row) {
      if (const auto index = batch.find(indices, result.get<Uuid>(row, 0))) acted.push_back(*index);
    }
  }
}

}  // namespace

SettleBatch::SettleBatch(Backend& backend, std::span<const Settlement> settlements)
    : settlements_(settlements),
      batch_(backend, settlements.empty() ? "settle" : verb_of(settlements.front().outcome.kind),
             leases_of(settlements, [](const Settlement& s) { return s.lease; })) {
  std::vector<std::string_view> outcomes;
  outcomes.reserve(settlements.size());
  for (const Settlement& settlement : settlements) outcomes.push_back(to_string(settlement.outcome.kind));
  batch_.expect_outcomes(std::move(outcomes));
}

void SettleBatch::act(std::int16_t bucket, Indices indices, pg::Unit& unit) const {
  const auto outcome = [&](std::size_t i) -> const Outcome& { return settlements_[i].outcome; };
  const auto error = [&](std::size_t i) -> std::optional<std::string> {
    return outcome(i).error ? std::optional{storable_text(*outcome(i).error)} : std::nullopt;
  };
  pg::Params params = batch_.fence_params(bucket, indices);
  const auto has = [&](auto member) {
    return std::ranges::any_of(indices, [&](std::size_t i) { return (outcome(i).*member).has_value(); });
  };
  if (finishes(outcome(indices.front()))) {
    params.add(outcome(indices.front()).kind == Outcome::Kind::succeeded);
    // Most jobs give no result, and then nothing is sent.
    if (has(&Outcome::result)) {
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
    if (has(&Outcome::error))
      params.add_array(pg::Type::text, indices, error);
    else
      params.add_null(pg::Type::text_array);
    params.add(batch_.sent_before());
    unit.add(sql::kJobsFinish, std::move(params));
  } else {
    params.add_array(pg::Type::text, indices, [&](std::size_t i) { return to_string(outcome(i).kind); });
    params.add_array(pg::Type::text, indices, error);
    params.add_array(pg::Type::int8, indices, [&](std::size_t i) -> std::optional<std::int64_t> {
      return outcome(i).delay ? std::optional<std::int64_t>{outcome(i).delay->count()} : std::nullopt;
    });
    params.add(batch_.sent_before());
    unit.add(sql::kJobsReturn, std::move(params));
  }
}

void SettleBatch::read(std::span<const pg::Result> results, Indices indices,
                       std::vector<std::size_t>& acted) {
  read_named(batch_, results, indices, acted);
  if (finishes(settlements_.front().outcome)) return;
  for (const pg::Result& rows : results) {
    for (int row = 0; row < rows.rows(); ++row) {
      if (rows.get<bool>(row, 2)) due_queues_.insert(rows.get<std::string>(row, 1));
    }
  }
}

namespace {

Expected<std::vector<Verdict>> run_batch(Backend& backend, SettleBatch& batch, Deadline deadline,
                                         std::optional<std::vector<std::size_t>> acted = std::nullopt) {
  const FencedBatch::Act act = [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
    batch.act(bucket, indices, unit);
  };
  const FencedBatch::Read read = [&](std::span<const pg::Result> results, Indices indices, bool,
                                     std::vector<std::size_t>& done) { batch.read(results, indices, done); };
  auto verdicts =
      acted ? batch.fenced().finish(*acted, act, read, deadline) : batch.fenced().run(act, read, deadline);
  backend.announce(batch.due_queues(), deadline);
  if (!verdicts) return verdicts;
  carry_out_cancellations(backend, batch.fenced(), deadline);
  return verdicts;
}

}  // namespace

void carry_out_cancellations(Backend& backend, const FencedBatch& refused, Deadline deadline) {
  std::vector<Settlement> endings;
  for (const std::size_t index : refused.open_cancellations()) {
    endings.push_back({.lease = refused.lease(index), .outcome = {.kind = Outcome::Kind::cancelled}});
  }
  if (endings.empty()) return;
  SettleBatch batch{backend, endings};
  static_cast<void>(run_batch(backend, batch, deadline));
}

namespace {

/// The problem with settlements, if there is one.
std::optional<Error> check_settlements(const Backend& backend, std::span<const Settlement> settlements) {
  for (const Settlement& settlement : settlements) {
    if (auto problem = check_outcome(settlement.outcome, backend.limits())) return problem;
  }
  return std::nullopt;
}

/// One batch per verb, because the evidence names the verb and because what finishes a job and what does not
/// are two statements. Returns the positions of each verb's settlements.
std::vector<std::vector<std::size_t>> by_verb(std::span<const Settlement> settlements) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < settlements.size(); ++i) {
    const auto same = [&](const std::vector<std::size_t>& group) {
      return settlements[group.front()].outcome.kind == settlements[i].outcome.kind;
    };
    auto group = std::ranges::find_if(groups, same);
    if (group == groups.end()) group = groups.insert(groups.end(), std::vector<std::size_t>{});
    group->push_back(i);
  }
  return groups;
}

}  // namespace

Expected<std::vector<Verdict>> settle(Backend& backend, std::span<const Settlement> settlements, bool resent,
                                      Deadline deadline) {
  if (auto problem = check_settlements(backend, settlements)) return std::unexpected(std::move(*problem));
  SettleBatch whole{backend, settlements};
  if (resent) whole.fenced().was_sent_before();
  if (auto problem = check_batch(whole.fenced())) return std::unexpected(std::move(*problem));
  const auto groups = by_verb(settlements);
  if (groups.size() <= 1) return run_batch(backend, whole, deadline);

  std::vector<Verdict> verdicts(settlements.size());
  bool anything_committed = false;
  for (const auto& group : groups) {
    std::vector<Settlement> same_verb;
    for (const std::size_t i : group) same_verb.push_back(settlements[i]);
    SettleBatch batch{backend, same_verb};
    if (resent) batch.fenced().was_sent_before();
    auto part = run_batch(backend, batch, deadline);
    if (!part) {
      // An error says that nothing was changed. That is no longer true of the whole call.
      if (!anything_committed) return std::unexpected(std::move(part.error()));
      part = std::vector<Verdict>(group.size(), Verdict{.status = Verdict::Status::unknown});
    }
    for (std::size_t i = 0; i < group.size(); ++i) verdicts[group[i]] = std::move((*part)[i]);
    anything_committed = true;
  }
  return verdicts;
}

Expected<Store::Exchange> exchange(Backend& backend, Claims& claims, std::span<const Settlement> settlements,
                                   const ClaimRequest& request, Deadline deadline) {
  if (auto problem = check_claim(request)) return std::unexpected(std::move(*problem));
  if (auto problem = check_settlements(backend, settlements)) return std::unexpected(std::move(*problem));
  // Before anything is settled: after that, an error could no longer say that nothing was changed.
  if (auto problem = backend.check_queue_exists(request.queue, deadline))
    return std::unexpected(std::move(*problem));
  const bool one_verb = !settlements.empty() && by_verb(settlements).size() == 1;

  Store::Exchange done;
  if (one_verb) {
    SettleBatch batch{backend, settlements};
    if (auto problem = check_batch(batch.fenced())) return std::unexpected(std::move(*problem));
    if (batch.fenced().groups().size() == 1) {
      const auto& group = batch.fenced().groups().front();
      const std::int16_t bucket = batch.fenced().lease(group.front()).job.bucket();
      pg::Unit unit;
      batch.act(bucket, group, unit);
      const Claims::Step step = claims.add_step(request, bucket, request.limit, unit);
      auto results = backend.try_run(unit, deadline);
      std::vector<std::size_t> acted;
      bool look_further = true;
      if (results) {
        batch.read(std::span{*results}.first(1), group, acted);
        const auto claimed = claims.read_step(request, step, results->back(), done.claimed);
        look_further = backend.buckets() > 1 || claimed == Claims::Next::look_again;
      } else if (results.error().code == pg::Errc::outcome_unknown) {
        batch.fenced().was_sent_before();
      } else if (results.error().sqlstate != kLeaseExpiredMeanwhile) {
        return std::unexpected(translate(results.error()));
      }
      auto verdicts = run_batch(backend, batch, deadline, std::move(acted));
      if (!verdicts) return std::unexpected(std::move(verdicts.error()));
      done.verdicts = std::move(*verdicts);
      if (look_further && done.claimed.size() < request.limit) {
        // The settlements are through, and that must be told; if this fails, the next claim says why.
        static_cast<void>(claims.claim_from_buckets(request, done.claimed, deadline));
      }
      return done;
    }
  }
  auto verdicts = settle(backend, settlements, /*resent=*/false, deadline);
  if (!verdicts) return std::unexpected(std::move(verdicts.error()));
  done.verdicts = std::move(*verdicts);
  auto claimed = claims.claim(request, deadline);
  if (claimed)
    done.claimed = std::move(*claimed);
  else if (settlements.empty())
    return std::unexpected(std::move(claimed.error()));
  return done;
}

Expected<std::vector<Beat>> heartbeat(Backend& backend, std::span<const Lease> leases,
                                      std::optional<std::chrono::milliseconds> extend, Deadline deadline) {
  if (extend) {
    if (auto problem = check_extend(*extend)) return std::unexpected(std::move(*problem));
  }
  FencedBatch batch{backend, extend ? "extend" : "heartbeat", {leases.begin(), leases.end()}};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  batch.use_partition(Backend::Partition::heartbeat);
  std::vector<Beat> beats(leases.size());
  auto verdicts = batch.run(
      [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
        pg::Params params = batch.fence_params(bucket, indices);
        params.begin_array(pg::Type::int8);
        for (std::size_t i = 0; i < indices.size(); ++i) {
          if (extend)
            params.push(std::int64_t{extend->count()});
          else
            params.push_null();
        }
        params.end_array();
        unit.add(sql::kLeasesHeartbeat, std::move(params));
      },
      [&](std::span<const pg::Result> results, Indices indices, bool, std::vector<std::size_t>& acted) {
        const pg::Result& rows = results.front();
        for (int row = 0; row < rows.rows(); ++row) {
          const auto index = batch.find(indices, rows.get<Uuid>(row, 0));
          if (!index) continue;
          beats[*index] = {
              .status = rows.get<bool>(row, 2) ? Beat::Status::cancel_requested : Beat::Status::renewed,
              .lease_expires_at = rows.get<DatabaseTime>(row, 1),
              .cancel_reason = rows.get<std::optional<std::string>>(row, 3)};
          acted.push_back(*index);
        }
      },
      deadline);
  if (!verdicts) return std::unexpected(std::move(verdicts.error()));
  for (std::size_t i = 0; i < beats.size(); ++i) {
    if ((*verdicts)[i].status == Verdict::Status::unknown) {
      return std::unexpected(Error{.code = ErrorCode::unavailable,
                                   .message = "the answer to the heartbeat was lost",
                                   .hint = "a lease is renewed only when the answer says so"});
    }
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
  FencedBatch batch{backend, "progress", leases_of(reports, [](const ProgressReport& r) { return r.lease; })};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  return batch.run(
      [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
        pg::Params params = batch.fence_params(bucket, indices);
        params.add_array(pg::Type::float8, indices, [&](std::size_t i) { return reports[i].fraction; });
        params.add_array(pg::Type::text, indices,
                         [&](std::size_t i) { return storable_text(reports[i].note); });
        unit.add(sql::kLeasesProgress, std::move(params));
      },
      [&](std::span<const pg::Result> results, Indices indices, bool, std::vector<std::size_t>& acted) {
        read_named(batch, results, indices, acted);
      },
      deadline);
}

Expected<std::vector<Verdict>> check(Backend& backend, std::span<const Lease> leases, Deadline deadline) {
  FencedBatch batch{backend, "check", {leases.begin(), leases.end()}};
  if (auto problem = check_batch(batch)) return std::unexpected(std::move(*problem));
  return batch.run([&](std::int16_t bucket, Indices indices,
                       pg::Unit& unit) { unit.add(sql::kLeasesCheck, batch.fence_params(bucket, indices)); },
                   [&](std::span<const pg::Result> results, Indices indices, bool,
                       std::vector<std::size_t>& acted) { read_named(batch, results, indices, acted); },
                   deadline);
}

Expected<std::vector<std::optional<Outcome::Kind>>> resolve(Backend& backend, std::span<const Lease> leases,
                                                            Deadline deadline) {
  const FencedBatch batch{backend, "resolve", {leases.begin(), leases.end()}};
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  std::vector<std::optional<Outcome::Kind>> outcomes(leases.size());
  for (const auto& group : batch.groups()) {
    const std::int16_t bucket = batch.lease(group.front()).job.bucket();
    auto rows = backend.read(sql::kLeasesFind, batch.fence_params(bucket, group), deadline);
    if (!rows) return std::unexpected(std::move(rows.error()));
    for (int row = 0; row < rows->rows(); ++row) {
      const auto index = batch.find(group, rows->get<Uuid>(row, 0));
      if (index) outcomes[*index] = parse_outcome(rows->get<std::string_view>(row, 1));
    }
  }
  return outcomes;
}

}  // namespace faultline::store
