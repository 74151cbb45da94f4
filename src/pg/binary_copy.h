#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pg/encoding.h"
#include "pg/types.h"

namespace faultline::pg {

/// Rows for `COPY … FROM STDIN (FORMAT binary)`, appended to a buffer that the caller owns and may
/// empty between rows: `header()` once, per row `begin_row(n)` and n values, `trailer()` once.
/// COPY converts nothing: an int4 column takes std::int32_t only, a jsonb column takes `add_jsonb`
/// (json, text and enum columns take text).
class BinaryCopy {
 public:
  explicit BinaryCopy(std::string& buffer) : buffer_(buffer) {}

  void header();
  void begin_row(std::int16_t columns) { append_value(buffer_, columns); }
  void trailer() { append_value(buffer_, std::int16_t{-1}); }

  BinaryCopy& add(bool value) { return add_value(value); }
  BinaryCopy& add(std::int16_t value) { return add_value(value); }
  BinaryCopy& add(std::int32_t value) { return add_value(value); }
  BinaryCopy& add(std::int64_t value) { return add_value(value); }
  BinaryCopy& add(double value) { return add_value(value); }
  BinaryCopy& add(std::string_view value) { return add_value(value); }
  BinaryCopy& add(const char* value) { return add_value(std::string_view{value}); }
  BinaryCopy& add(const std::string& value) { return add_value(std::string_view{value}); }
  BinaryCopy& add(BytesView value) { return add_value(value); }
  BinaryCopy& add(const Uuid& value) { return add_value(value); }
  BinaryCopy& add(DatabaseTime value) { return add_value(value); }
  BinaryCopy& add_jsonb(std::string_view json);
  BinaryCopy& add_text_array(const std::vector<std::string>& values);
  BinaryCopy& add_null();
  template <class T>
  BinaryCopy& add(const std::optional<T>& value) {
    return value ? add(*value) : add_null();
  }

 private:
  template <class T>
  BinaryCopy& add_value(const T& value) {
    append_sized_value(buffer_, value);
    return *this;
  }

  std::string& buffer_;
};

}  // namespace faultline::pg
