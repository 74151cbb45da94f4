#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "store/backend.h"

namespace faultline::store {

/// Raised by faultline.still_in_time().
inline constexpr std::string_view kLeaseExpiredMeanwhile = "FL001";

/// How every fenced verb runs, so that no verb can forget a part of it:
///
///   1. Act: one statement changes the rows whose lease is good and names them. It decides by (token, lease
///      id, expiry) in the row's newest version; if a lease ran out while the statement waited for a lock,
///      all of it is undone (FL001).
///   2. What was not named is judged, under its row lock: a reason, with evidence in the same transaction;
///      or the lease is good after all, and step 1 is done again for it.
///   3. If the answer to a commit was lost, step 1 is simply sent again. What was committed the first time
///      does not come back from it, and the judgement finds it in the ledger under the same lease id.
///
/// Items are grouped by bucket and sorted by job within it, so that two batches lock in one order.
class FencedBatch {
 public:
  using Indices = std::span<const std::size_t>;
  /// Adds the statements that act on the leases with these indices, all of one bucket.
  using Act = std::function<void(std::int16_t bucket, Indices, pg::Unit&)>;
  /// Reads the results of these statements and appends the indices that were acted on.
  using Read =
      std::function<void(std::span<const pg::Result>, Indices, bool resent, std::vector<std::size_t>& acted)>;

  FencedBatch(Backend& backend, std::string_view verb, std::vector<Lease> leases);

  /// The outcome that the item's settlement writes into the ledger, for verbs that settle.
  void expect_outcomes(std::vector<std::string_view> outcomes) { outcomes_ = std::move(outcomes); }
  void use_partition(Backend::Partition partition) { partition_ = partition; }
  /// The answer of an earlier try was lost.
  void was_sent_before() { sent_before_ = true; }
  [[nodiscard]] bool sent_before() const { return sent_before_; }

  /// The problem with the batch, if it has one: a lease that no claim gave.
  [[nodiscard]] std::optional<Error> check() const;
  [[nodiscard]] Expected<std::vector<Verdict>> run(const Act& act, const Read& read, Deadline deadline);
  /// The same, for items that a unit of the caller's has been over already: `acted` went through.
  [[nodiscard]] Expected<std::vector<Verdict>> finish(Indices acted, const Act& act, const Read& read,
                                                      Deadline deadline);

  /// Judges items that a transaction of the caller's did not act on. No verdict: the lease is good, and that
  /// transaction may be tried again.
  [[nodiscard]] Expected<std::vector<std::optional<Verdict>>> judge_refused(Deadline deadline);

  /// The items in order, group by group: (bucket, indices sorted by job).
  [[nodiscard]] const std::vector<std::vector<std::size_t>>& groups() const { return groups_; }
  /// The index, among `indices`, of a job's item.
  [[nodiscard]] std::optional<std::size_t> find(Indices indices, const Uuid& job) const;
  [[nodiscard]] const Lease& lease(std::size_t index) const { return leases_[index]; }
  /// Whose job is to be cancelled and still runs: the worker's settlement was refused for it.
  [[nodiscard]] const std::vector<std::size_t>& open_cancellations() const { return open_cancellations_; }

  /// The parameters that all fenced statements begin with: bucket, jobs, tokens, lease ids.
  [[nodiscard]] pg::Params fence_params(std::int16_t bucket, Indices indices) const;

 private:
  [[nodiscard]] Expected<void> run_group(std::vector<std::size_t> rest, const Act& act, const Read& read,
                                         Deadline deadline);
  /// Judges what was not acted on; leaves in `rest` what may be tried again.
  [[nodiscard]] Expected<void> judge(std::vector<std::size_t>& rest, bool resent, Deadline deadline);
  /// What to say when the database cannot be asked any more. An error promises that nothing was changed:
  /// where that cannot be said, of this item or of another one of the batch, the rest is `unknown` instead.
  [[nodiscard]] Expected<void> leave_open(Indices rest, bool resent, Error error);

  Backend& backend_;
  std::string_view verb_;
  std::vector<Lease> leases_;
  std::vector<std::string_view> outcomes_;
  std::vector<std::vector<std::size_t>> groups_;
  std::vector<Verdict> verdicts_;
  std::vector<std::size_t> open_cancellations_;
  Backend::Partition partition_ = Backend::Partition::general;
  bool sent_before_ = false;
  bool something_is_written_ = false;
};

}  // namespace faultline::store
