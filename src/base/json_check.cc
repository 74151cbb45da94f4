#include "base/json_check.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace faultline {
namespace {

class Checker {
 public:
  Checker(std::string_view text, std::size_t depth_max) : text_(text), depth_max_(depth_max) {}

  std::optional<JsonProblem> run() {
    // What may come next. Opened arrays and objects are on a stack of one byte each.
    bool value_expected = true;
    for (;;) {
      skip_space();
      if (value_expected) {
        if (!value(value_expected)) return problem_;
        continue;
      }
      if (open_.empty()) break;
      if (at_ == text_.size()) return fail("the text ends inside an array or object");
      const char c = text_[at_];
      if (c == ',') {
        ++at_;
        if (open_.back() == '{' && !key()) return problem_;
        value_expected = true;
      } else if (c == (open_.back() == '{' ? '}' : ']')) {
        ++at_;
        open_.pop_back();
      } else {
        return fail("a comma or the end of the array or object was expected");
      }
    }
    if (at_ != text_.size()) return fail("something follows the value");
    return std::nullopt;
  }

 private:
  std::optional<JsonProblem> fail(std::string_view what) {
    if (!problem_) problem_ = JsonProblem{.offset = at_, .what = std::string{what}};
    return problem_;
  }
  bool refuse(std::string_view what) {
    static_cast<void>(fail(what));
    return false;
  }

  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  /// One scalar, or the opening of an array or object; leaves `value_expected` as it is after that.
  bool value(bool& value_expected) {
    if (at_ == text_.size()) return refuse("the text ends where a value was expected");
    value_expected = false;
    const char c = text_[at_];
    if (c == '"') return string();
    if (c == '-' || (c >= '0' && c <= '9')) return number();
    if (c != '{' && c != '[') return literal();
    if (open_.size() == depth_max_) return refuse("it is nested too deep");
    open_.push_back(c);
    ++at_;
    skip_space();
    if (at_ < text_.size() && text_[at_] == (c == '{' ? '}' : ']')) {
      ++at_;
      open_.pop_back();
      return true;
    }
    value_expected = true;
    return c == '[' || key();
  }

  bool key() {
    skip_space();
    if (at_ == text_.size() || text_[at_] != '"') return refuse("a key in quotes was expected");
    if (!string()) return false;
    skip_space();
    if (at_ == text_.size() || text_[at_] != ':') return refuse("a colon was expected");
    ++at_;
    return true;
  }

  bool string() {
    ++at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20U) return refuse("a control character must be escaped");
      if (c == '\\') {
        if (!escape()) return false;
        continue;
      }
      const std::size_t length = utf8_length_at(text_, at_);
      if (length == 0) return refuse("it is not valid UTF-8");
      at_ += length;
    }
    return refuse("the text ends inside a string");
  }

  bool escape() {
    const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c != 'u') {
      if (c == '\0' || std::string_view{"\"\\/bfnrt"}.find(c) == std::string_view::npos) {
        return refuse("there is no such escape");
      }
      at_ += 2;
      return true;
    }
    const auto unit = hex4(at_ + 2);
    if (!unit) return refuse("\\u needs four hexadecimal digits");
    at_ += 6;
    if (*unit < 0xD800U || *unit > 0xDFFFU) return true;
    // A surrogate stands for something only as the first of a pair.
    if (*unit <= 0xDBFFU && at_ + 1 < text_.size() && text_[at_] == '\\' && text_[at_ + 1] == 'u') {
      const auto second = hex4(at_ + 2);
      if (second && *second >= 0xDC00U && *second <= 0xDFFFU) {
        at_ += 6;
        return true;
      }
    }
    return refuse("half of a surrogate pair stands alone");
  }

  std::optional<std::uint32_t> hex4(std::size_t at) const {
    if (at + 4 > text_.size()) return std::nullopt;
    std::uint32_t unit = 0;
    for (std::size_t i = at; i < at + 4; ++i) {
      const char c = text_[i];
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9')
        digit = static_cast<std::uint32_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        digit = static_cast<std::uint32_t>(c - 'a') + 10U;
      else if (c >= 'A' && c <= 'F')
        digit = static_cast<std::uint32_t>(c - 'A') + 10U;
      else
        return std::nullopt;
      unit = unit * 16U + digit;
    }
    return unit;
  }

  std::size_t digits() {
    const std::size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    return at_ - start;
  }

  bool number() {
    if (text_[at_] == '-') ++at_;
    if (at_ < text_.size() && text_[at_] == '0') {
      ++at_;
      if (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9')
        return refuse("a number begins with a zero");
    } else if (digits() == 0) {
      return refuse("a digit was expected");
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      if (digits() == 0) return refuse("a digit was expected after the point");
    }
    if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
      if (digits() == 0) return refuse("a digit was expected in the exponent");
    }
    return true;
  }

  bool literal() {
    for (const std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return true;
      }
    }
    return refuse("a value was expected");
  }

  std::string_view text_;
  std::size_t depth_max_;
  std::size_t at_ = 0;
  std::string open_;
  std::optional<JsonProblem> problem_;
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::optional<JsonProblem> find_json_problem(std::span<const std::byte> text, std::size_t depth_max) {
  return Checker{as_text(text), depth_max}.run();
}

}  // namespace faultline
