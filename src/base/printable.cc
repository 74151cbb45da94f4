#include "base/printable.h"

#include <array>
#include <cstdio>

#include "base/utf8.h"

namespace faultline {
namespace {

char32_t code_at(std::string_view text, std::size_t at, std::size_t length) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  if (length == 1) return byte(0);
  char32_t code = byte(0) & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) code = code << 6U | (byte(i) & 0x3FU);
  return code;
}

bool is_trick(char32_t code) {
  return code < 0x20U || (code >= 0x7FU && code <= 0x9FU) ||       // controls
         code == 0x061CU || code == 0x200EU || code == 0x200FU ||  // marks of direction
         (code >= 0x202AU && code <= 0x202EU) || (code >= 0x2066U && code <= 0x2069U) ||  // its changes
         code == 0x2028U || code == 0x2029U;                                              // separators
}

/// How long a colour at this place is: ESC [ digits ; … m. 0: there is none.
std::size_t colour_at(std::string_view text, std::size_t at) {
  if (text.substr(at, 2) != "\x1b[") return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 - at : 0;
}

/// Calls `replace(code)` for each trick, with U+FFFD for a byte that is no text, and copies the rest.
template <class Keep, class Replace>
std::string without_tricks(std::string_view text, Keep keep, Replace replace) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t kept = keep(at); kept > 0) {
      out += text.substr(at, kept);
      at += kept;
      continue;
    }
    const std::size_t length = utf8_length_at(text, at);
    const char32_t code = length == 0 ? U'\uFFFD' : code_at(text, at, length);
    if (length == 0 || is_trick(code))
      replace(out, code);
    else
      out += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) {
  return without_tricks(
      text, [](std::size_t) { return std::size_t{0}; }, [](std::string& out, char32_t) { out += '?'; });
}

std::string printable_lines(std::string_view text) {
  return without_tricks(
      text,
      [&](std::size_t at) {
        return text[at] == '\n' || text[at] == '\t' ? std::size_t{1} : colour_at(text, at);
      },
      [](std::string& out, char32_t) { out += '?'; });
}

std::string printable_json(std::string_view json) {
  return without_tricks(
      json,
      [&](std::size_t at) {
        // Between its tokens.
        const char c = json[at];
        return c == '\n' || c == '\t' || c == '\r' ? std::size_t{1} : std::size_t{0};
      },
      [](std::string& out, char32_t code) {
        std::array<char, 8> escape{};
        std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(code));
        out += escape.data();
      });
}

}  // namespace faultline
