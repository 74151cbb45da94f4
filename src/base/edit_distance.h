#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace faultline {

/// How many characters must be put in, left out, replaced or swapped with their neighbour to turn one into
/// the other.
[[nodiscard]] std::size_t edit_distance(std::string_view one, std::string_view other);

/// What was probably meant: the nearest of the known words, if it is near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known);

}  // namespace faultline
