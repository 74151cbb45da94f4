#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

#include "faultline/language.h"

namespace faultline {

/// A 128-bit identifier in network byte order. A value type; thread-safe as `int` is.
struct Uuid {
  std::array<std::uint8_t, 16> bytes{};

  friend constexpr auto operator<=>(const Uuid&, const Uuid&) = default;

  [[nodiscard]] constexpr bool is_nil() const { return bytes == std::array<std::uint8_t, 16>{}; }

  /// Lower-case `8-4-4-4-12` form.
  [[nodiscard]] std::string to_string() const;

  /// Accepts the `8-4-4-4-12` form in either case, and nothing else.
  [[nodiscard]] static std::optional<Uuid> parse(std::string_view text);

  /// A random (version 4) identifier from the operating system's entropy.
  [[nodiscard]] static Uuid random();
};
std::ostream& operator<<(std::ostream& out, const Uuid& uuid);

}  // namespace faultline

template <>
struct std::hash<faultline::Uuid> {
  std::size_t operator()(const faultline::Uuid& uuid) const noexcept;
};
