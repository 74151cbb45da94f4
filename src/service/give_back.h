#pragma once

#include <vector>

#include "faultline/job.h"
#include "faultline/store.h"

namespace faultline::service {

/// A job on its way to a client.
struct JobInTransit {
  Lease lease;
  Delivery delivery = Delivery::at_least_once;
};
[[nodiscard]] JobInTransit in_transit(const ClaimedJob& job);

/// How far a job had come when its way broke off.
enum class Transit {
  not_begun,  ///< the client certainly does not have it
  begun,      ///< nobody knows: a write that failed may have arrived all the same
};

/// What gives back jobs whose way broke off, so that others have them at once. One that may have arrived, and
/// that must not run twice, is not among them: if nobody works on it its lease runs out, and it ends as its
/// delivery class says.
[[nodiscard]] std::vector<Settlement> give_back(std::vector<JobInTransit> jobs, Transit transit);

}  // namespace faultline::service
