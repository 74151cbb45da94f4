#pragma once

#include "store/backend.h"

namespace faultline::store {

[[nodiscard]] Expected<SweepReport> expire_leases(Backend& backend, std::size_t jobs_max, Deadline deadline);
[[nodiscard]] Expected<Store::PruneReport> prune(Backend& backend, std::size_t limit, Deadline deadline);
[[nodiscard]] Expected<bool> fold_counts(Backend& backend, Deadline deadline);

}  // namespace faultline::store
