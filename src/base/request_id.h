#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "faultline/uuid.h"

namespace faultline {

/// The name of a call, in its answer and in the log: the caller's own, if it has the form of one, else a new
/// one. It goes into headers and lines as it is, so it is letters, digits and few other characters.
[[nodiscard]] inline std::string request_id(std::string_view given) {
  constexpr std::size_t kBytesMax = 128;
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == ':';
  };
  if (!given.empty() && given.size() <= kBytesMax && std::ranges::all_of(given, is_good))
    return std::string{given};
  return Uuid::random().to_string();
}

}  // namespace faultline
