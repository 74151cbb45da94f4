#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "service/service.h"

namespace faultline::service {

/// A store's answer as a service's.
template <class T>
[[nodiscard]] ServiceResult<T> to_result(Expected<T> result) {
  if (!result) return std::unexpected(Problem::from(result.error()));
  return std::move(*result);
}

[[nodiscard]] std::vector<QueueOverview> overviews_of(std::vector<Queue> queues,
                                                      std::vector<QueueCounts> counts);
[[nodiscard]] Problem no_such_queue(const std::string& name);
[[nodiscard]] ServiceResult<QueueOverview> find_queue(Store& store, const std::string& name);

[[nodiscard]] ServiceResult<Service::StalePage> list_stale_writes(Store& store, const Principal& who,
                                                                  std::size_t limit,
                                                                  std::optional<DatabaseTime> before);

/// Whether a filter is the caller's business.
[[nodiscard]] std::optional<Problem> check_filter(const Principal& who, Operation operation,
                                                  const ListRequest& filter);
[[nodiscard]] std::optional<Problem> check_selection(const Principal& who, Operation operation,
                                                     const Selection& selection);

/// Which of these jobs the caller may know of: all but those of other queues than its own.
[[nodiscard]] ServiceResult<std::vector<bool>> known_to(Store& store, const Principal& who,
                                                        std::span<const JobId> ids);

[[nodiscard]] inline bool is_change(CancelStatus status) {
  return status == CancelStatus::cancelled || status == CancelStatus::requested;
}
[[nodiscard]] inline bool is_change(RequeueStatus status) { return status == RequeueStatus::requeued; }
[[nodiscard]] inline bool is_change(PurgeStatus status) { return status == PurgeStatus::purged; }

/// Cancels, requeues or purges jobs.
template <class Status>
using Act = std::function<ServiceResult<std::vector<Status>>(Store&, std::span<const JobId>)>;

template <class Status>
[[nodiscard]] ServiceResult<Changed<Status>> change_by_id(Store& store, const Principal& who,
                                                          std::span<const JobId> ids,
                                                          const Act<Status>& act) {
  const auto known = known_to(store, who, ids);
  if (!known) return std::unexpected(known.error());
  std::vector<JobId> allowed;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if ((*known)[i]) allowed.push_back(ids[i]);
  }
  const auto statuses = act(store, allowed);
  if (!statuses) return std::unexpected(statuses.error());
  Changed<Status> changed;
  auto next = statuses->begin();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Status status = (*known)[i] ? *next++ : Status::not_found;
    changed.items.emplace_back(ids[i], status);
    if (is_change(status)) ++changed.changed;
  }
  return changed;
}

}  // namespace faultline::service
