#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "service/access.h"

namespace faultline::keys {

/// Keys are few and belong to the whole installation: all are in one bucket.
inline constexpr std::int16_t kBucket = 0;

/// Scopes as the table has them.
[[nodiscard]] inline service::Scopes scopes_of(const std::vector<std::string>& names) {
  service::Scopes scopes;
  for (const std::string& name : names) {
    if (const auto scope = service::parse_scope(name)) scopes.add(*scope);
  }
  return scopes;
}

}  // namespace faultline::keys
