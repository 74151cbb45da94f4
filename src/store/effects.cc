#include "store/effects.h"

#include <algorithm>

#include "sql/statements.h"

namespace faultline::store {
namespace {

using Indices = FencedBatch::Indices;

/// The index of an item by job and key: one job may have several effects in a batch.
template <class Items>
std::optional<std::size_t> find_item(const Items& items, Indices indices, const Uuid& job,
                                     std::string_view key) {
  const auto found = std::ranges::find_if(
      indices, [&](std::size_t i) { return items[i].lease.job.value == job && items[i].key == key; });
  if (found == indices.end()) return std::nullopt;
  return *found;
}

template <class Items>
std::optional<Error> check_items(const Items& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (auto problem = check_effect_key(items[i].key)) return problem;
    for (std::size_t j = 0; j < i; ++j) {
      if (items[j].lease.job == items[i].lease.job && items[j].key == items[i].key) {
        return Error{.code = ErrorCode::invalid_argument,
                     .message = "effect \"" + items[i].key + "\" of job " + items[i].lease.job.to_string() +
                                " stands twice in the batch",
                     .hint = "a batch has one entry per job and key"};
      }
    }
  }
  return std::nullopt;
}

template <class Items>
FencedBatch batch_of(Backend& backend, std::string_view verb, const Items& items) {
  std::vector<Lease> leases;
  leases.reserve(items.size());
  for (const auto& item : items) leases.push_back(item.lease);
  return {backend, verb, std::move(leases)};
}

std::optional<std::string> read_bytes(const pg::Result& rows, int row, int column) {
  if (rows.is_null(row, column)) return std::nullopt;
  const pg::BytesView bytes = rows.get<pg::BytesView>(row, column);
  return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Waits for the job rows in a statement of its own, in front of the one that looks at their effects: that
/// one then sees what another call has written under the same lease meanwhile.
void add_lock(const FencedBatch& batch, std::int16_t bucket, Indices indices, pg::Unit& unit) {
  pg::Params params;
  params.add(bucket).add_array(pg::Type::uuid, indices,
                               [&](std::size_t i) { return batch.lease(i).job.value; });
  unit.add(sql::kLeasesLock, std::move(params));
}

Expected<std::vector<Effect>> merge(std::vector<Effect> effects, Expected<std::vector<Verdict>> verdicts) {
  if (!verdicts) return std::unexpected(std::move(verdicts.error()));
  for (std::size_t i = 0; i < effects.size(); ++i) {
    if ((*verdicts)[i].status == Verdict::Status::stale) {
      effects[i] = {.status = Effect::Status::stale, .stale = std::move((*verdicts)[i].stale)};
    } else if ((*verdicts)[i].status == Verdict::Status::unknown) {
      return std::unexpected(Error{.code = ErrorCode::outcome_unknown,
                                   .message = "whether the effect was written down is not known",
                                   .hint = "ask again with the same lease and key"});
    }
  }
  return effects;
}

}  // namespace

Expected<std::vector<Effect>> begin_effects(Backend& backend, std::span<const EffectKey> keys,
                                            Deadline deadline) {
  if (auto problem = check_items(keys)) return std::unexpected(std::move(*problem));
  FencedBatch batch = batch_of(backend, "effect", keys);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  std::vector<Effect> effects(keys.size());
  auto verdicts = batch.run(
      [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
        add_lock(batch, bucket, indices, unit);
        pg::Params params = batch.fence_params(bucket, indices);
        params.add_array(pg::Type::text, indices,
                         [&](std::size_t i) { return std::string_view{keys[i].key}; });
        unit.add(sql::kEffectsBegin, std::move(params));
      },
      [&](std::span<const pg::Result> results, Indices indices, bool resent,
          std::vector<std::size_t>& acted) {
        const pg::Result& rows = results.back();
        for (int row = 0; row < rows.rows(); ++row) {
          const auto index =
              find_item(keys, indices, rows.get<Uuid>(row, 0), rows.get<std::string_view>(row, 1));
          if (!index) continue;
          Effect& effect = effects[*index];
          if (rows.get<bool>(row, 2)) {
            effect.status = Effect::Status::begun;
          } else if (rows.get<bool>(row, 3)) {
            effect = {.status = Effect::Status::recorded, .result = read_bytes(rows, row, 4)};
          } else {
            const FenceToken begun_under{rows.get<std::int64_t>(row, 5)};
            // Sent again because the answer was lost: then it is this very call that began it.
            const bool own = resent && begun_under == keys[*index].lease.token;
            effect = {.status = own ? Effect::Status::begun : Effect::Status::unknown,
                      .begun_under = begun_under};
          }
          acted.push_back(*index);
        }
      },
      deadline);
  return merge(std::move(effects), std::move(verdicts));
}

Expected<std::vector<Effect>> record_effects(Backend& backend, std::span<const EffectResult> results,
                                             Deadline deadline) {
  if (auto problem = check_items(results)) return std::unexpected(std::move(*problem));
  for (const EffectResult& result : results) {
    if (auto problem = check_result(result.result, backend.limits()))
      return std::unexpected(std::move(*problem));
  }
  FencedBatch batch = batch_of(backend, "effect", results);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  std::vector<Effect> effects(results.size());
  auto verdicts = batch.run(
      [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
        add_lock(batch, bucket, indices, unit);
        pg::Params params = batch.fence_params(bucket, indices);
        params.add_array(pg::Type::text, indices,
                         [&](std::size_t i) { return std::string_view{results[i].key}; });
        params.add_array(pg::Type::bytea, indices,
                         [&](std::size_t i) { return std::as_bytes(std::span{results[i].result}); });
        unit.add(sql::kEffectsRecord, std::move(params));
      },
      [&](std::span<const pg::Result> answers, Indices indices, bool, std::vector<std::size_t>& acted) {
        const pg::Result& rows = answers.back();
        for (int row = 0; row < rows.rows(); ++row) {
          const auto index =
              find_item(results, indices, rows.get<Uuid>(row, 0), rows.get<std::string_view>(row, 1));
          if (!index) continue;
          effects[*index] = {.status = Effect::Status::recorded, .result = read_bytes(rows, row, 3)};
          acted.push_back(*index);
        }
      },
      deadline);
  return merge(std::move(effects), std::move(verdicts));
}

Expected<std::vector<Verdict>> forget_effects(Backend& backend, std::span<const EffectKey> keys,
                                              Deadline deadline) {
  if (auto problem = check_items(keys)) return std::unexpected(std::move(*problem));
  FencedBatch batch = batch_of(backend, "effect", keys);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  return batch.run(
      [&](std::int16_t bucket, Indices indices, pg::Unit& unit) {
        add_lock(batch, bucket, indices, unit);
        for (const std::size_t i : indices) {
          const Lease& lease = keys[i].lease;
          pg::Params params;
          params.add(bucket).add(lease.job.value).add(lease.token.value).add(lease.lease_id).add(keys[i].key);
          unit.add(sql::kEffectsForget, std::move(params));
        }
      },
      [&](std::span<const pg::Result> results, Indices indices, bool, std::vector<std::size_t>& acted) {
        // The first result is the lock's.
        for (std::size_t i = 0; i < indices.size(); ++i) {
          if (results[i + 1].rows() > 0) acted.push_back(indices[i]);
        }
      },
      deadline);
}

}  // namespace faultline::store
