#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace faultline {

/// A value inside a text that `find_json_problem` has found well-formed: the bytes from its first to its
/// last. Nothing is built and nothing is copied, so that a payload is kept as the bytes that came.
class Json {
 public:
  /// `text` may have white space around the value.
  explicit Json(std::string_view text);

  [[nodiscard]] std::string_view raw() const { return text_; }
  [[nodiscard]] bool is_object() const { return text_.front() == '{'; }
  [[nodiscard]] bool is_array() const { return text_.front() == '['; }
  [[nodiscard]] bool is_string() const { return text_.front() == '"'; }
  [[nodiscard]] bool is_null() const { return text_.front() == 'n'; }
  [[nodiscard]] std::optional<bool> boolean() const;
  /// Whole numbers without point and exponent only.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  [[nodiscard]] std::optional<double> number() const;
  [[nodiscard]] std::string string() const;  ///< of a string

  /// Calls `visit(key, value)` for every member of an object until it returns false. False if it did.
  template <std::predicate<const std::string&, Json> F>
  bool members(const F& visit) const {
    for (std::size_t at = first(); text_[at] != '}';) {
      const Json key = value_at(at);
      skip_past(at, ':');
      const Json value = value_at(at);
      if (!visit(key.string(), value)) return false;
      next(at);
    }
    return true;
  }
  /// The same for the elements of an array.
  template <std::predicate<Json> F>
  bool elements(const F& visit) const {
    for (std::size_t at = first(); text_[at] != ']';) {
      if (!visit(value_at(at))) return false;
      next(at);
    }
    return true;
  }

 private:
  [[nodiscard]] std::size_t first() const;
  [[nodiscard]] Json value_at(std::size_t& at) const;
  void skip_space(std::size_t& at) const;
  void skip_past(std::size_t& at, char c) const;
  void next(std::size_t& at) const;

  std::string_view text_;
};

/// Writes JSON text. The caller sees to it that it is well nested.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& string(std::string_view text);  ///< what is not UTF-8 in it becomes U+FFFD
  JsonWriter& integer(std::int64_t value);
  JsonWriter& number(double value);
  JsonWriter& boolean(bool value);
  JsonWriter& raw(std::string_view json);

  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char c);
  JsonWriter& close(char c);
  void separate();
  void append_escaped(std::string_view text);

  std::string out_;
  bool first_ = true;  ///< nothing stands before the next value in its object or array
};

/// RFC 4648, section 4, with padding.
[[nodiscard]] std::string base64(std::string_view bytes);
[[nodiscard]] std::optional<std::string> parse_base64(std::string_view text);

}  // namespace faultline
