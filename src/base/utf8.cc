#include "base/utf8.h"

#include <algorithm>

namespace faultline {

std::size_t utf8_length_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
  };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80U) return at < text.size() ? 1 : 0;
  if (first >= 0xC2U && first <= 0xDFU) return continues(1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    const unsigned low = first == 0xE0U ? 0xA0U : 0x80U;
    const unsigned high = first == 0xEDU ? 0x9FU : 0xBFU;
    return byte(1) >= low && byte(1) <= high && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    const unsigned low = first == 0xF0U ? 0x90U : 0x80U;
    const unsigned high = first == 0xF4U ? 0x8FU : 0xBFU;
    return byte(1) >= low && byte(1) <= high && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length_at(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

void append_repaired_utf8(std::string& out, std::string_view text) {
  for (;;) {
    const std::size_t good = find_invalid_utf8(text).value_or(text.size());
    out += text.substr(0, good);
    if (good == text.size()) return;
    append_utf8(out, U'\uFFFD');
    text.remove_prefix(good + 1);
  }
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  append_repaired_utf8(out, text);
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  const auto push = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80U) {
    push(code);
  } else if (code < 0x800U) {
    push(0xC0U | (code >> 6U));
    push(0x80U | (code & 0x3FU));
  } else if (code < 0x10000U) {
    push(0xE0U | (code >> 12U));
    push(0x80U | ((code >> 6U) & 0x3FU));
    push(0x80U | (code & 0x3FU));
  } else {
    push(0xF0U | (code >> 18U));
    push(0x80U | ((code >> 12U) & 0x3FU));
    push(0x80U | ((code >> 6U) & 0x3FU));
    push(0x80U | (code & 0x3FU));
  }
}

std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return !continues_utf8(c); }));
}

std::string_view first_characters(std::string_view text, std::size_t count) {
  std::size_t begun = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!continues_utf8(text[at]) && ++begun > count) return text.substr(0, at);
  }
  return text;
}

std::string_view first_bytes(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && continues_utf8(text[bytes_max])) --bytes_max;
  return text.substr(0, bytes_max);
}

}  // namespace faultline
