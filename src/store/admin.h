#pragma once

#include "store/backend.h"

namespace faultline::store {

[[nodiscard]] Expected<std::vector<CancelStatus>> cancel(Backend& backend, std::span<const JobId> jobs,
                                                         std::string_view who, std::string_view reason,
                                                         Uuid call, Deadline deadline);
[[nodiscard]] Expected<std::vector<RequeueStatus>> requeue(Backend& backend, std::span<const JobId> jobs,
                                                           std::string_view who, Uuid call,
                                                           Deadline deadline);
[[nodiscard]] Expected<std::vector<PurgeStatus>> purge_dead(Backend& backend, std::span<const JobId> jobs,
                                                            std::string_view who, Uuid call,
                                                            Deadline deadline);
[[nodiscard]] Expected<DecideStatus> decide_effect(Backend& backend, const EffectFinding& finding,
                                                   std::string_view who, Deadline deadline);
/// `make`: one that there is not. Otherwise that is `unknown_queue`.
[[nodiscard]] Expected<void> set_queue(Backend& backend, std::string_view name, const QueueSettings& settings,
                                       bool make, Deadline deadline);
[[nodiscard]] Expected<QueueDeletion> delete_queue(Backend& backend, std::string_view name,
                                                   Deadline deadline);

}  // namespace faultline::store
