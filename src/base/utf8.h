#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace faultline {

// Text as UTF-8. What is valid is what RFC 3629 says: no overlong forms, no surrogates, nothing past
// U+10FFFF.

/// The length of the character that begins at `at`, or 0 if none does.
[[nodiscard]] std::size_t utf8_length_at(std::string_view text, std::size_t at);

/// The offset of the first byte that is not part of valid UTF-8.
[[nodiscard]] std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// With U+FFFD in the place of every byte that is not part of valid UTF-8.
[[nodiscard]] std::string repaired_utf8(std::string_view text);
void append_repaired_utf8(std::string& out, std::string_view text);

/// Appends one code point.
void append_utf8(std::string& out, char32_t code);

/// Whether a byte goes on with a character that began before it.
[[nodiscard]] constexpr bool continues_utf8(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Characters, not bytes.
[[nodiscard]] std::size_t characters_of(std::string_view text);

/// The first characters of a text: at most `count` of them, or as many as fit into `bytes_max` bytes.
[[nodiscard]] std::string_view first_characters(std::string_view text, std::size_t count);
[[nodiscard]] std::string_view first_bytes(std::string_view text, std::size_t bytes_max);

}  // namespace faultline
