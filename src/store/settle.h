#pragma once

#include "store/claim.h"
#include "store/fence.h"

namespace faultline::store {

[[nodiscard]] Expected<std::vector<Verdict>> settle(Backend& backend, std::span<const Settlement> settlements,
                                                    Deadline deadline);
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
