#pragma once

#include "store/backend.h"

namespace faultline::store {

[[nodiscard]] Expected<std::optional<Job>> find_job(Backend& backend, JobId id, Deadline deadline);
[[nodiscard]] Expected<std::vector<std::optional<Job>>> find_jobs(Backend& backend,
                                                                  std::span<const JobId> ids,
                                                                  Deadline deadline);
[[nodiscard]] Expected<std::vector<std::optional<JobState>>> find_states(Backend& backend,
                                                                         std::span<const JobId> ids,
                                                                         Deadline deadline);
[[nodiscard]] Expected<std::vector<std::optional<std::string>>> find_queues_of(Backend& backend,
                                                                               std::span<const JobId> ids,
                                                                               Deadline deadline);
[[nodiscard]] Expected<std::optional<JobHistory>> find_history(Backend& backend, JobId id, Deadline deadline);
[[nodiscard]] Expected<JobPage> list_jobs(Backend& backend, const ListRequest& request, Deadline deadline);
[[nodiscard]] Expected<std::vector<StaleWrite>> list_stale_writes(Backend& backend, std::size_t limit,
                                                                  std::optional<DatabaseTime> before,
                                                                  Deadline deadline);
[[nodiscard]] Expected<std::vector<Queue>> list_queues(Backend& backend, Deadline deadline);
[[nodiscard]] Expected<std::vector<QueueCounts>> count_jobs(Backend& backend,
                                                            const std::optional<std::string>& queue,
                                                            Deadline deadline);
[[nodiscard]] Expected<DatabaseTime> database_time(Backend& backend, Deadline deadline);

}  // namespace faultline::store
