#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace faultline::config {

/// Digits only.
[[nodiscard]] std::optional<std::size_t> parse_count(std::string_view text);
/// As parse_duration and parse_size read it, in the largest unit that fits.
[[nodiscard]] std::string write_duration(std::chrono::milliseconds duration);
[[nodiscard]] std::string write_size(std::size_t bytes);
/// A number that is finite, with or without a decimal point and digits.
[[nodiscard]] std::optional<double> parse_ratio(std::string_view text);
[[nodiscard]] std::string write_ratio(double ratio);
/// A value that somebody gave, for a message: in quotes, without passwords, and not too long.
[[nodiscard]] std::string quoted(std::string_view value);

}  // namespace faultline::config
