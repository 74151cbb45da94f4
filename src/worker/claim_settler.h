#pragma once

#include <atomic>
#include <vector>

#include "worker/coordinator.h"
#include "worker/link.h"
#include "worker/log.h"
#include "worker/meter.h"
#include "worker/outages.h"

namespace faultline::worker {

/// Carries outcomes to the database and brings jobs back: the claimer and the settler in one, so that a
/// settlement and the next claim share a round trip and a commit. Several run, each on a thread of its own;
/// on an idle worker the listener's thread does a round when it hears of new jobs.
class ClaimSettler {
 public:
  ClaimSettler(Link& link, Coordinator& coordinator, const Log& log, const Meter& meter, Outages& outages)
      : link_(link), coordinator_(coordinator), log_(log), meter_(meter), outages_(outages) {}

  void run();
  /// One round of it: writes the outcomes, and claims.
  void settle_and_claim(Coordinator::Work& work);
  /// The other side has answered.
  void succeeded();

 private:
  /// Takes the outcomes. False: the other side cannot be reached, and they are back with the coordinator.
  [[nodiscard]] bool settle(std::vector<PendingOutcome>& outcomes);
  bool settle_failed(std::vector<PendingOutcome> outcomes, const Error& error);
  void claim(const Coordinator::Claim& claim);
  void claimed(const Coordinator::Claim& claim, Link::Claimed claimed);
  /// Tells of each verdict and ends the attempts; what is unknown goes back with the coordinator.
  void take_verdicts(std::vector<PendingOutcome> outcomes, const std::vector<Verdict>& verdicts);
  void tell_settled(const PendingOutcome& pending) const;
  void failed(const Error& error);
  [[nodiscard]] ClaimRequest request(const Coordinator::Claim& claim) const {
    return {.queue = std::string{claim.queue},
            .worker = log_.worker(),
            .limit = claim.limit,
            .ahead = claim.ahead,
            .suspects_max = claim.suspects_max};
  }

  Link& link_;
  Coordinator& coordinator_;
  const Log& log_;
  const Meter& meter_;
  Outages& outages_;
};

}  // namespace faultline::worker
