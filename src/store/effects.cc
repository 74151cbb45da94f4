#include "store/effects.h"

#include <algorithm>

#include "sql/statements.h"
#include "store/fence.h"
#include "store/rows.h"

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
FencedBatch batch_of(Backend& backend, const Items& items, const std::vector<std::size_t>& bytes = {}) {
  std::vector<Lease> leases;
  leases.reserve(items.size());
  for (const auto& item : items) leases.push_back(item.lease);
  FencedBatch batch{backend, std::move(leases), bytes};
  batch.match_rows_by([&items](const pg::Result& rows, int row, Indices indices) {
    return find_item(items, indices, rows.get<Uuid>(row, column_of(rows, "id")),
                     rows.get<std::string_view>(row, column_of(rows, "key")));
  });
  return batch;
}

template <class Items>
pg::Params params_of(const FencedBatch& batch, const Items& items, std::int16_t bucket, Indices indices) {
  pg::Params params = batch.params(bucket, indices);
  params.add_array(pg::Type::text, indices, [&](std::size_t i) { return std::string_view{items[i].key}; });
  return params;
}

std::optional<std::string> read_bytes(const pg::Result& rows, int row, int column) {
  if (rows.is_null(row, column)) return std::nullopt;
  const pg::BytesView bytes = rows.get<pg::BytesView>(row, column);
  return std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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
  FencedBatch batch = batch_of(backend, keys);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  // Made before the first sending, so that all sendings of this call are the same call.
  std::vector<Uuid> calls;
  calls.reserve(keys.size());
  for (const EffectKey& key : keys) calls.push_back(key.call.is_nil() ? Uuid::random() : key.call);
  std::vector<Effect> effects(keys.size());
  auto verdicts = batch.run(
      sql::kEffectsBegin,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = params_of(batch, keys, bucket, indices);
        params.add_array(pg::Type::uuid, indices, [&](std::size_t i) { return calls[i]; });
        return params;
      },
      [&](const pg::Result& rows) -> FencedBatch::ReadRow {
        return [&](int row, std::size_t index) {
          const auto status = rows.get<std::string_view>(row, column_of(rows, "status"));
          if (status == "begun") {
            effects[index].status = Effect::Status::begun;
          } else if (status == "recorded") {
            effects[index] = {.status = Effect::Status::recorded,
                              .result = read_bytes(rows, row, column_of(rows, "result"))};
          } else if (status == "unknown") {
            effects[index] = {
                .status = Effect::Status::unknown,
                .begun_under = FenceToken{rows.get<std::int64_t>(row, column_of(rows, "begun_under"))}};
          }
        };
      },
      deadline);
  return merge(std::move(effects), std::move(verdicts));
}

Expected<std::vector<Effect>> record_effects(Backend& backend, std::span<const EffectResult> results,
                                             Deadline deadline) {
  if (auto problem = check_items(results)) return std::unexpected(std::move(*problem));
  std::vector<std::size_t> bytes;
  for (const EffectResult& result : results) {
    if (auto problem = check_result(result.result, backend.limits()))
      return std::unexpected(std::move(*problem));
    bytes.push_back(result.result.size());
  }
  FencedBatch batch = batch_of(backend, results, bytes);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  std::vector<Effect> effects(results.size());
  auto verdicts = batch.run(
      sql::kEffectsRecord,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = params_of(batch, results, bucket, indices);
        params.add_array(pg::Type::bytea, indices,
                         [&](std::size_t i) { return std::as_bytes(std::span{results[i].result}); });
        return params;
      },
      [&](const pg::Result& rows) -> FencedBatch::ReadRow {
        return [&](int row, std::size_t index) {
          effects[index] = {.status = Effect::Status::recorded,
                            .result = read_bytes(rows, row, column_of(rows, "result"))};
        };
      },
      deadline);
  return merge(std::move(effects), std::move(verdicts));
}

Expected<std::vector<Verdict>> forget_effects(Backend& backend, std::span<const EffectKey> keys,
                                              Deadline deadline) {
  if (auto problem = check_items(keys)) return std::unexpected(std::move(*problem));
  FencedBatch batch = batch_of(backend, keys);
  if (auto problem = batch.check()) return std::unexpected(std::move(*problem));
  return batch.run(
      sql::kEffectsForget,
      [&](std::int16_t bucket, Indices indices) {
        pg::Params params = params_of(batch, keys, bucket, indices);
        params.add_array(pg::Type::uuid, indices, [&](std::size_t i) -> std::optional<Uuid> {
          return keys[i].call.is_nil() ? std::nullopt : std::optional{keys[i].call};
        });
        return params;
      },
      /*read=*/nullptr, deadline);
}

}  // namespace faultline::store
