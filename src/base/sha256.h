#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace faultline {

using Sha256 = std::array<std::byte, 32>;

/// The SHA-256 of the parts, one after the other.
[[nodiscard]] Sha256 sha256(std::initializer_list<std::span<const std::byte>> parts);

[[nodiscard]] inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span{text.data(), text.size()});
}

[[nodiscard]] std::string to_hex(std::span<const std::byte> bytes);

}  // namespace faultline
