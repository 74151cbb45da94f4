#pragma once

#include <set>

#include "store/claim.h"
#include "store/fence.h"

namespace faultline::store {

/// Settlements, ready to be sent.
class SettleBatch {
 public:
  SettleBatch(Backend& backend, std::span<const Settlement> settlements);

  [[nodiscard]] FencedBatch& fenced() { return batch_; }
  /// The problem with them, if there is one.
  [[nodiscard]] std::optional<Error> check() const;
  [[nodiscard]] pg::Params params(std::int16_t bucket, FencedBatch::Indices indices) const;
  /// As `params`, for the statement that judges and settles nothing. `sent`: the settlements were sent, and
  /// may be on record.
  [[nodiscard]] pg::Params judge_params(std::int16_t bucket, FencedBatch::Indices indices, bool sent) const;
  [[nodiscard]] FencedBatch::ReadRow read(const pg::Result& rows);
  /// What was not answered yet. `sent`: it was sent before.
  [[nodiscard]] Expected<std::vector<Verdict>> run(bool sent, Deadline deadline);

  /// Queues to which these settlements gave back jobs that somebody can claim at once.
  [[nodiscard]] const std::set<std::string>& due_queues() const { return due_queues_; }

 private:
  void add_outcomes(pg::Params& params, FencedBatch::Indices indices) const;
  void add_results_and_errors(pg::Params& params, FencedBatch::Indices indices) const;

  Backend& backend_;
  std::span<const Settlement> settlements_;
  FencedBatch batch_;
  std::set<std::string> due_queues_;
};

[[nodiscard]] Expected<std::vector<Verdict>> settle(Backend& backend, std::span<const Settlement> settlements,
                                                    Deadline deadline);
[[nodiscard]] Expected<Store::Exchange> exchange(Backend& backend, Claims& claims,
                                                 std::span<const Settlement> settlements,
                                                 const ClaimRequest& request, Deadline deadline);
[[nodiscard]] Expected<std::vector<Beat>> heartbeat(Backend& backend, std::span<const Lease> leases,
                                                    std::optional<std::chrono::milliseconds> extend,
                                                    std::span<const Stage> stages, Deadline deadline);
[[nodiscard]] Expected<std::vector<Verdict>> progress(Backend& backend,
                                                      std::span<const ProgressReport> reports,
                                                      Deadline deadline);
[[nodiscard]] Expected<std::vector<Verdict>> check(Backend& backend, std::span<const Lease> leases,
                                                   Deadline deadline);
[[nodiscard]] Expected<std::vector<std::optional<Outcome::Kind>>> resolve(Backend& backend,
                                                                          std::span<const Lease> leases,
                                                                          Deadline deadline);

}  // namespace faultline::store
