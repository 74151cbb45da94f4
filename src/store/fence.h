#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "store/backend.h"

namespace faultline::store {

/// Reads the verdicts of a fenced function's answer. The answer must outlive it.
class VerdictReader {
 public:
  explicit VerdictReader(const pg::Result& rows);
  [[nodiscard]] Uuid job(int row) const { return rows_.get<Uuid>(row, id_); }
  [[nodiscard]] Verdict read(int row) const;

 private:
  const pg::Result& rows_;
  int id_;
  int status_;
  int reason_;
  int current_token_;
  int current_worker_;
  int current_state_;
};

/// How every fenced verb runs, so that no verb can forget a part of it. One call of one function locks,
/// judges, acts on what is good and keeps the evidence of what is not; it answers every item. If its answer
/// is lost it is simply sent again: what it did the first time it finds, under the same lease id, and says
/// the same again.
///
/// Items are grouped by bucket and sorted by job within it, so that two batches lock in one order. A group is
/// bounded in number and in bytes: for its row locks, and for the memory of the server.
class FencedBatch {
 public:
  using Indices = std::span<const std::size_t>;
  /// The parameters of the verb's statement for these items, all of one bucket.
  using Call = std::function<pg::Params(std::int16_t bucket, Indices)>;
  /// Reads what the verb says of an item besides the verdict: from an answer, a row of it, the item's index.
  using ReadRow = std::function<void(int row, std::size_t index)>;
  using Read = std::function<ReadRow(const pg::Result&)>;
  /// The item that a row is about; by its job, where nothing else is said.
  using Match = std::function<std::optional<std::size_t>(const pg::Result&, int row, Indices)>;

  /// `bytes`: how much an item carries, by its index; empty for verbs that carry little.
  FencedBatch(Backend& backend, std::vector<Lease> leases, const std::vector<std::size_t>& bytes = {});

  void use_partition(Backend::Partition partition) { partition_ = partition; }
  /// For verbs with several items per job.
  void match_rows_by(Match match) { match_ = std::move(match); }

  /// The problem with the batch, if it has one: a lease that no claim gave.
  [[nodiscard]] std::optional<Error> check() const;
  [[nodiscard]] Expected<std::vector<Verdict>> run(const pg::Statement& verb, const Call& call,
                                                   const Read& read, Deadline deadline);

  /// Runs what a unit of the caller's has not been answered for; that one was `sent` in any case, or not.
  [[nodiscard]] Expected<std::vector<Verdict>> run_rest(const pg::Statement& verb, const Call& call,
                                                        const Read& read, bool sent, Deadline deadline);
  /// Takes the answer to a group that was part of a unit of the caller's.
  void take(const pg::Result& rows, Indices group, const Read& read) { take(rows, group, read, false); }

  /// The items in order, group by group: all of one bucket, sorted by job.
  [[nodiscard]] const std::vector<std::vector<std::size_t>>& groups() const { return groups_; }
  /// The index, among `indices`, of the job's item.
  [[nodiscard]] std::optional<std::size_t> find(const Uuid& job, Indices indices) const;
  [[nodiscard]] const Lease& lease(std::size_t index) const { return leases_[index]; }

  /// Bucket, jobs, tokens, lease ids.
  [[nodiscard]] pg::Params fence_params(std::int16_t bucket, Indices indices) const;
  /// The parameters that all fenced functions begin with: the same, and workers.
  [[nodiscard]] pg::Params params(std::int16_t bucket, Indices indices) const;

 private:
  [[nodiscard]] Expected<void> run_group(Indices group, const pg::Statement& verb, const Call& call,
                                         const Read& read, bool sent, Deadline deadline, bool alone = false);
  /// After somebody has held the row of one of them for longer than a verb waits: the others must not wait
  /// with it. The one that is held is left `unknown`.
  [[nodiscard]] Expected<void> run_one_by_one(Indices group, const pg::Statement& verb, const Call& call,
                                              const Read& read, bool sent, Deadline deadline);
  void take(const pg::Result& rows, Indices group, const Read& read, bool sent);
  /// What to say when the database cannot be asked any more. An error promises that nothing was changed:
  /// where that cannot be said, of this item or of another one of the batch, the rest is `unknown` instead.
  [[nodiscard]] Expected<void> leave_open(Indices group, bool sent, bool alone, Error error);

  Backend& backend_;
  std::vector<Lease> leases_;
  std::vector<std::vector<std::size_t>> groups_;
  std::vector<std::optional<Verdict>> verdicts_;
  Match match_;
  Backend::Partition partition_ = Backend::Partition::general;
  bool something_is_written_ = false;
};

}  // namespace faultline::store
