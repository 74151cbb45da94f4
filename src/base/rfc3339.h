#pragma once

#include <optional>
#include <string_view>

#include "faultline/time.h"

namespace faultline {

/// `2030-01-31T12:00:00Z`, with an optional fraction (beyond microseconds it is cut) and any offset. Years
/// 1970 to 9999.
[[nodiscard]] std::optional<DatabaseTime> parse_rfc3339(std::string_view text);

}  // namespace faultline
