#pragma once

#include <set>

#include "store/claim.h"
#include "store/fence.h"

namespace faultline::store {

/// Settlements of one kind of verb, ready to be sent.
class SettleBatch {
 public:
  SettleBatch(Backend& backend, std::span<const Settlement> settlements);

  [[nodiscard]] FencedBatch& fenced() { return batch_; }
  void act(std::int16_t bucket, FencedBatch::Indices indices, pg::Unit& unit) const;
  void read(std::span<const pg::Result> results, FencedBatch::Indices indices,
            std::vector<std::size_t>& acted);
  /// Queues to which these settlements gave back jobs that somebody can claim at once.
  [[nodiscard]] const std::set<std::string>& due_queues() const { return due_queues_; }

 private:
  std::span<const Settlement> settlements_;
  FencedBatch batch_;
  std::set<std::string> due_queues_;
};

/// A settlement that was refused because its job is to be cancelled shows that the worker is done with it:
/// the job ends now as cancelled, instead of when the lease runs out. If that fails, the lease runs out.
void carry_out_cancellations(Backend& backend, const FencedBatch& refused, Deadline deadline);

[[nodiscard]] Expected<std::vector<Verdict>> settle(Backend& backend, std::span<const Settlement> settlements,
                                                    bool resent, Deadline deadline);
[[nodiscard]] Expected<Store::Exchange> exchange(Backend& backend, Claims& claims,
                                                 std::span<const Settlement> settlements,
                                                 const ClaimRequest& request, Deadline deadline);
[[nodiscard]] Expected<std::vector<Beat>> heartbeat(Backend& backend, std::span<const Lease> leases,
                                                    std::optional<std::chrono::milliseconds> extend,
                                                    Deadline deadline);
[[nodiscard]] Expected<std::vector<Verdict>> progress(Backend& backend,
                                                      std::span<const ProgressReport> reports,
                                                      Deadline deadline);
[[nodiscard]] Expected<std::vector<Verdict>> check(Backend& backend, std::span<const Lease> leases,
                                                   Deadline deadline);
[[nodiscard]] Expected<std::vector<std::optional<Outcome::Kind>>> resolve(Backend& backend,
                                                                          std::span<const Lease> leases,
                                                                          Deadline deadline);

}  // namespace faultline::store
