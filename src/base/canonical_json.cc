#include "base/canonical_json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

namespace faultline {
namespace {

/// A number takes at most about this many bytes more than it was written with.
constexpr int kExponentMax = 64;
/// What lies deeper is taken as it is written: neither the stack nor the time that reordering takes may
/// depend on a text.
constexpr int kDepthMax = 128;

void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { out.push_back(static_cast<char>(value)); };
  if (code < 0x80U) return byte(code);
  if (code < 0x800U) {
    byte(0xC0U | (code >> 6U));
  } else {
    if (code < 0x10000U) {
      byte(0xE0U | (code >> 12U));
    } else {
      byte(0xF0U | (code >> 18U));
      byte(0x80U | ((code >> 12U) & 0x3FU));
    }
    byte(0x80U | ((code >> 6U) & 0x3FU));
  }
  byte(0x80U | (code & 0x3FU));
}

/// As `jsonb` escapes: the short forms, and \u00xx for the other control characters.
void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  constexpr std::string_view kShort = "\b\f\n\r\t\"\\";
  constexpr std::string_view kLetters = "bfnrt\"\\";
  out.push_back('"');
  for (const char c : text) {
    const auto value = static_cast<unsigned char>(c);
    if (const std::size_t found = kShort.find(c); found != std::string_view::npos) {
      out.push_back('\\');
      out.push_back(kLetters[found]);
    } else if (value < 0x20U) {
      out += "\\u00";
      out.push_back(kHexDigits[value >> 4U]);
      out.push_back(kHexDigits[value & 0x0FU]);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

/// The number without an exponent, with as many digits after the point as `numeric` keeps.
std::string plain_number(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::string_view rest = text.substr(negative ? 1 : 0);
  int exponent = 0;
  if (const std::size_t e = rest.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = rest.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc{} || exponent < -kExponentMax || exponent > kExponentMax) return std::string{text};
    rest = rest.substr(0, e);
  }
  const std::size_t point = rest.find('.');
  std::string digits{rest.substr(0, point)};
  std::ptrdiff_t fraction = 0;
  if (point != std::string_view::npos) {
    digits += rest.substr(point + 1);
    fraction = static_cast<std::ptrdiff_t>(rest.size() - point - 1);
  }
  fraction -= exponent;
  if (fraction < 0) {
    digits.append(static_cast<std::size_t>(-fraction), '0');
    fraction = 0;
  }
  const auto after_point = static_cast<std::size_t>(fraction);
  if (digits.size() <= after_point) digits.insert(0, after_point + 1 - digits.size(), '0');
  std::string whole = digits.substr(0, digits.size() - after_point);
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size() - 1));
  const bool is_zero = digits.find_first_not_of('0') == std::string::npos;
  std::string number = negative && !is_zero ? "-" : "";
  number += whole;
  if (after_point > 0) number += "." + digits.substr(digits.size() - after_point);
  return number;
}

/// Reads the text once. Only the members of an object that do not stand in order yet are copied once more, at
/// the end of that object.
class Canonical {
 public:
  explicit Canonical(std::string_view text) : text_(text) { out_.reserve(text.size() + text.size() / 8); }

  std::string take() {
    value();
    return std::move(out_);
  }

 private:
  struct Member {
    std::string key;
    std::size_t begin = 0;  ///< of the key and the value, in what was written
    std::size_t end = 0;
  };

  char next() {
    while (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r') ++at_;
    return text_[at_];
  }

  void value() {
    switch (next()) {
      case '{':
      case '[':
        if (depth_ == kDepthMax) return as_written();
        ++depth_;
        text_[at_] == '{' ? object() : array();
        --depth_;
        return;
      case '"':
        return append_quoted(out_, string());
      default:
        return scalar();
    }
  }

  /// An array or object, byte by byte.
  void as_written() {
    const std::size_t begin = at_;
    std::size_t open = 0;
    do {
      const char c = text_[at_];
      if (c == '"') {
        for (++at_; text_[at_] != '"'; ++at_) {
          if (text_[at_] == '\\') ++at_;
        }
      }
      open += c == '{' || c == '[' ? 1 : 0;
      open -= c == '}' || c == ']' ? 1 : 0;
      ++at_;
    } while (open > 0);
    out_ += text_.substr(begin, at_ - begin);
  }

  void scalar() {
    const std::size_t end = std::min(text_.find_first_of(" \n\t\r,]}", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    const bool is_number = word.front() == '-' || (word.front() >= '0' && word.front() <= '9');
    out_ += is_number ? plain_number(word) : std::string{word};
  }

  void array() {
    ++at_;
    out_.push_back('[');
    for (bool first = true; next() != ']'; first = false) {
      if (text_[at_] == ',') ++at_;
      if (!first) out_ += ", ";
      value();
    }
    ++at_;
    out_.push_back(']');
  }

  void object() {
    ++at_;
    out_.push_back('{');
    const std::size_t start = out_.size();
    std::vector<Member> members;
    while (next() != '}') {
      if (text_[at_] == ',') {
        ++at_;
        next();
      }
      if (!members.empty()) out_ += ", ";
      Member member{.key = string(), .begin = out_.size()};
      append_quoted(out_, member.key);
      next();
      ++at_;  // the colon
      out_ += ": ";
      value();
      member.end = out_.size();
      members.push_back(std::move(member));
    }
    ++at_;
    order(start, members);
    out_.push_back('}');
  }

  /// By the length of the name, then by its bytes.
  void order(std::size_t start, std::vector<Member>& members) {
    const auto before = [](const Member& one, const Member& other) {
      return one.key.size() != other.key.size() ? one.key.size() < other.key.size() : one.key < other.key;
    };
    if (std::ranges::is_sorted(members, before)) return;
    std::ranges::stable_sort(members, before);
    std::string ordered;
    ordered.reserve(out_.size() - start);
    for (const Member& member : members) {
      if (!ordered.empty()) ordered += ", ";
      ordered.append(out_, member.begin, member.end - member.begin);
    }
    out_.replace(start, std::string::npos, ordered);
  }

  /// What stands between the quotes at this place.
  std::string string() {
    std::string plain;
    for (++at_; text_[at_] != '"';) {
      const std::size_t end = text_.find_first_of("\"\\", at_);
      plain += text_.substr(at_, end - at_);
      at_ = end;
      if (text_[at_] == '\\') escape(plain);
    }
    ++at_;
    return plain;
  }

  void escape(std::string& plain) {
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeant = "\b\f\n\r\t";
    const char c = text_[at_ + 1];
    if (c != 'u') {
      const std::size_t found = kLetters.find(c);
      plain.push_back(found == std::string_view::npos ? c : kMeant[found]);
      at_ += 2;
      return;
    }
    std::uint32_t code = unit();
    if (code >= 0xD800U && code <= 0xDBFFU) code = 0x10000U + ((code - 0xD800U) << 10U) + (unit() - 0xDC00U);
    append_utf8(plain, code);
  }

  /// One \uXXXX.
  std::uint32_t unit() {
    std::uint32_t code = 0;
    const char* const digits = text_.data() + at_ + 2;
    std::from_chars(digits, digits + 4, code, 16);
    at_ += 6;
    return code;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;  ///< of the arrays and objects around this place
  std::string out_;
};

}  // namespace

std::string canonical_json(std::string_view text) { return Canonical{text}.take(); }

}  // namespace faultline
