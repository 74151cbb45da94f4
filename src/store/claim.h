#pragma once

#include <atomic>

#include "store/backend.h"
#include "store/claim_cursor.h"

namespace faultline::store {

/// Claims. Thread-safe.
class Claims {
 public:
  explicit Claims(Backend& backend) : backend_(backend) {}

  [[nodiscard]] Expected<std::vector<ClaimedJob>> claim(const ClaimRequest& request, Deadline deadline);

  /// A job was put back where claims have passed already.
  void rewind() { cursor_.rewind(); }

  /// A claim on one bucket as part of a larger unit.
  struct Step {
    std::int16_t bucket = 0;
    std::size_t limit = 0;
    Uuid lease_id;
    ClaimCursor::Scan scan;
    ClaimCursor::Clock::time_point begun;
  };
  /// Every step has a lease id of its own, so that what a lost answer granted is never taken for what the
  /// next one did. `wait`: for the turn at a queue with a cap, if somebody else has it.
  [[nodiscard]] Step add_step(const ClaimRequest& request, std::int16_t bucket, std::size_t limit, bool wait,
                              pg::Unit& unit);
  /// `busy`: somebody else has the turn at a queue with a cap. `enough`: more is due, but a call brings no
  /// more bytes than that.
  enum class Next { done, look_again, busy, enough };
  /// Reads the claim's result, the last of the unit's, and appends its jobs.
  [[nodiscard]] Expected<Next> read_step(const ClaimRequest& request, const Step& step,
                                         const pg::Result& result, std::vector<ClaimedJob>& jobs);
  /// Claims on until the limit is reached or every bucket was looked at.
  [[nodiscard]] Expected<void> claim_from_buckets(const ClaimRequest& request, std::vector<ClaimedJob>& jobs,
                                                  Deadline deadline);

 private:
  [[nodiscard]] Expected<Next> claim_from(std::int16_t bucket, const ClaimRequest& request,
                                          std::vector<ClaimedJob>& jobs, Deadline deadline);

  Backend& backend_;
  ClaimCursor cursor_;
  std::atomic<unsigned> turn_{0};
};

}  // namespace faultline::store
