#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "store/backend.h"

namespace faultline::store {

/// Job ids by bucket, each once. An id whose bucket does not exist here names no job.
[[nodiscard]] inline std::map<std::int16_t, std::vector<JobId>> by_bucket(const Backend& backend,
                                                                          std::span<const JobId> jobs) {
  std::map<std::int16_t, std::vector<JobId>> groups;
  for (const JobId& job : jobs) {
    if (job.bucket() >= 0 && job.bucket() < backend.buckets()) groups[job.bucket()].push_back(job);
  }
  for (auto& [bucket, ids] : groups) {
    std::ranges::sort(ids);
    ids.erase(std::ranges::unique(ids).begin(), ids.end());
  }
  return groups;
}

/// The parameters that statements on jobs begin with: bucket, jobs.
[[nodiscard]] inline pg::Params id_params(std::int16_t bucket, const std::vector<JobId>& jobs) {
  pg::Params params;
  params.add(bucket).add_array(pg::Type::uuid, jobs, [](const JobId& job) { return job.value; });
  return params;
}

}  // namespace faultline::store
