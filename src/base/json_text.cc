#include "base/json_text.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace faultline {
namespace {

constexpr std::string_view kJsonSpace = " \t\r\n";
constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The end of the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

/// The end of the value that begins at `at`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
    } else if (c == '{' || c == '[') {
      ++depth;
      ++at;
      continue;
    } else if (c == '}' || c == ']') {
      --depth;
      ++at;
    } else if (depth == 0) {
      return std::min(text.find_first_of(",:]} \t\r\n", at), text.size());
    } else {
      ++at;
      continue;
    }
    if (depth == 0) return at;
  }
  return at;
}

unsigned hex4(std::string_view text) {
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + 4, value, 16);
  return value;
}

/// Appends what the escape at `at` stands for, and moves behind it.
void append_escape(std::string& out, std::string_view text, std::size_t& at) {
  const char c = text[at + 1];
  at += 2;
  switch (c) {
    case 'b':
      out += '\b';
      return;
    case 'f':
      out += '\f';
      return;
    case 'n':
      out += '\n';
      return;
    case 'r':
      out += '\r';
      return;
    case 't':
      out += '\t';
      return;
    case 'u':
      break;
    default:
      out += c;
      return;
  }
  unsigned code = hex4(text.substr(at));
  at += 4;
  if (code >= 0xD800U && code <= 0xDBFFU) {
    code = 0x10000U + ((code - 0xD800U) << 10U) + (hex4(text.substr(at + 2)) - 0xDC00U);
    at += 6;
  }
  append_utf8(out, code);
}

}  // namespace

Json::Json(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kJsonSpace);
  text_ = text.substr(begin, text.find_last_not_of(kJsonSpace) + 1 - begin);
}

std::optional<bool> Json::boolean() const {
  if (text_ == "true") return true;
  if (text_ == "false") return false;
  return std::nullopt;
}

std::optional<std::int64_t> Json::integer() const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{} || end != text_.data() + text_.size()) return std::nullopt;
  return value;
}

std::optional<double> Json::number() const {
  double value = 0;
  const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{} || end != text_.data() + text_.size()) return std::nullopt;
  return value;
}

std::string Json::string() const {
  const std::string_view inside = text_.substr(1, text_.size() - 2);
  if (inside.find('\\') == std::string_view::npos) return std::string{inside};
  std::string out;
  out.reserve(inside.size());
  for (std::size_t at = 0; at < inside.size();) {
    if (inside[at] == '\\') {
      append_escape(out, inside, at);
    } else {
      out += inside[at++];
    }
  }
  return out;
}

std::size_t Json::first() const {
  std::size_t at = 1;
  skip_space(at);
  return at;
}

Json Json::value_at(std::size_t& at) const {
  const std::size_t end = end_of_value(text_, at);
  const Json value{text_.substr(at, end - at)};
  at = end;
  return value;
}

void Json::skip_space(std::size_t& at) const { at = text_.find_first_not_of(kJsonSpace, at); }

void Json::skip_past(std::size_t& at, char c) const {
  at = text_.find(c, at) + 1;
  skip_space(at);
}

void Json::next(std::size_t& at) const {
  skip_space(at);
  if (text_[at] == ',') skip_past(at, ',');
}

JsonWriter& JsonWriter::open(char c) {
  separate();
  out_ += c;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char c) {
  out_ += c;
  first_ = false;
  return *this;
}

void JsonWriter::separate() {
  if (!first_) out_ += ',';
  first_ = false;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  out_ += ':';
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  out_ += '"';
  if (find_invalid_utf8(text)) {
    append_escaped(repaired_utf8(text));
  } else {
    append_escaped(text);
  }
  out_ += '"';
  return *this;
}

void JsonWriter::append_escaped(std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20U) {
      constexpr std::string_view kHex = "0123456789abcdef";
      out_ += "\\u00";
      out_ += kHex[static_cast<unsigned char>(c) >> 4U];
      out_ += kHex[static_cast<unsigned char>(c) & 0xFU];
    } else {
      out_ += c;
    }
  }
}

JsonWriter& JsonWriter::integer(std::int64_t value) { return raw(std::to_string(value)); }

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return raw("null");
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return raw({text.data(), static_cast<std::size_t>(end - text.data())});
}

JsonWriter& JsonWriter::boolean(bool value) { return raw(value ? "true" : "false"); }

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const auto byte = [&](std::size_t i) -> unsigned {
      return at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U;
    };
    const unsigned group = (byte(0) << 16U) | (byte(1) << 8U) | byte(2);
    out += kBase64Digits[group >> 18U];
    out += kBase64Digits[(group >> 12U) & 63U];
    out += at + 1 < bytes.size() ? kBase64Digits[(group >> 6U) & 63U] : '=';
    out += at + 2 < bytes.size() ? kBase64Digits[group & 63U] : '=';
  }
  return out;
}

std::optional<std::string> parse_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  const std::size_t digits = text.size() - padding;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  unsigned group = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t value = at < digits ? kBase64Digits.find(text[at]) : 0;
    if (value == std::string_view::npos) return std::nullopt;
    group = (group << 6U) | static_cast<unsigned>(value);
    if (at % 4 != 3) continue;
    for (const unsigned shift : {16U, 8U, 0U}) out += static_cast<char>((group >> shift) & 0xFFU);
    group = 0;
  }
  out.erase(out.size() - padding);
  return out;
}

}  // namespace faultline
