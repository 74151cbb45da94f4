#pragma once

#include "store/fence.h"

namespace faultline::store {

[[nodiscard]] Expected<std::vector<Effect>> begin_effects(Backend& backend, std::span<const EffectKey> keys,
                                                          Deadline deadline);
[[nodiscard]] Expected<std::vector<Effect>> record_effects(Backend& backend,
                                                           std::span<const EffectResult> results,
                                                           Deadline deadline);
[[nodiscard]] Expected<std::vector<Verdict>> forget_effects(Backend& backend, std::span<const EffectKey> keys,
                                                            Deadline deadline);

}  // namespace faultline::store
