#pragma once

#include <optional>

#include "config/settings.h"

namespace faultline::config {

/// Settings that are good one by one, and not together.
[[nodiscard]] std::optional<Error> find_contradiction(const Loaded& loaded);

/// Files that are named and cannot be read.
[[nodiscard]] std::optional<Error> find_unreadable_file(const Loaded& loaded);

}  // namespace faultline::config
