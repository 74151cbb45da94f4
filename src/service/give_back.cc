#include "service/give_back.h"

#include <utility>

namespace faultline::service {

JobInTransit in_transit(const ClaimedJob& job) { return {.lease = job.lease, .delivery = job.delivery}; }

std::vector<Settlement> give_back(std::vector<JobInTransit> jobs, Transit transit) {
  std::vector<Settlement> settlements;
  settlements.reserve(jobs.size());
  for (JobInTransit& job : jobs) {
    if (transit == Transit::begun && !may_run_twice(job.delivery)) continue;
    settlements.push_back({.lease = std::move(job.lease), .outcome = Outcome::release()});
  }
  return settlements;
}

}  // namespace faultline::service
