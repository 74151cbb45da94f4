#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"
#include "pg/types.h"

namespace faultline::pg {

/// The parameters of one execution, encoded in PostgreSQL's binary format as they are added.
/// One buffer holds all values, so that a batch of a thousand rows costs a handful of allocations.
/// A value type; not for use by two threads at once.
class Params {
 public:
  Params& add(bool value);
  Params& add(std::int16_t value);
  Params& add(std::int32_t value);
  Params& add(std::int64_t value);
  Params& add(double value);
  Params& add(std::string_view value);  ///< text
  Params& add(const char* value) { return add(std::string_view{value}); }
  Params& add(const std::string& value) { return add(std::string_view{value}); }
  Params& add(BytesView value);  ///< bytea
  Params& add(const Uuid& value);
  Params& add(DatabaseTime value);  ///< timestamptz; time_point::min()/max() are -infinity/infinity
  Params& add_null(Type type);

  template <class T>
  Params& add(const std::optional<T>& value) {
    return value ? add(*value) : add_null(type_of<T>());
  }

  /// One-dimensional arrays. Rows are appended with `push`/`push_null` between `begin_array` and
  /// `end_array`; the element type must be the one given.
  Params& begin_array(Type element);
  Params& push(bool value);
  Params& push(std::int16_t value);
  Params& push(std::int32_t value);
  Params& push(std::int64_t value);
  Params& push(double value);
  Params& push(std::string_view value);
  Params& push(const char* value) { return push(std::string_view{value}); }
  Params& push(const std::string& value) { return push(std::string_view{value}); }
  Params& push(BytesView value);
  Params& push(const Uuid& value);
  Params& push(DatabaseTime value);
  Params& push_null();
  template <class T>
  Params& push(const std::optional<T>& value) {
    return value ? push(*value) : push_null();
  }
  Params& end_array();

  /// A whole range as an array: `add_array(Type::uuid, leases, [](const Lease& l) { return l.job; })`.
  template <class Range, class Projection>
  Params& add_array(Type element, const Range& range, Projection projection) {
    begin_array(element);
    for (const auto& item : range) push(projection(item));
    return end_array();
  }

  [[nodiscard]] int count() const { return static_cast<int>(types_.size()); }
  [[nodiscard]] std::size_t bytes() const { return buffer_.size(); }

  /// As libpq takes them. The oids of the types, and for each value its bytes (null for NULL) and length.
  [[nodiscard]] const std::vector<std::uint32_t>& types() const { return types_; }
  [[nodiscard]] const char* value(int index) const;
  [[nodiscard]] int length(int index) const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  template <class T>
  Params& add_value(Type type, const T& value);
  template <class T>
  Params& push_value(Type type, const T& value);
  void begin_value(Type type);
  void end_value();

  std::vector<std::uint32_t> types_;
  std::vector<std::size_t> offsets_;  // into buffer_; kNone for NULL
  std::vector<int> lengths_;
  std::string buffer_;
  std::optional<Type> open_array_;  // its element type
  std::uint32_t open_array_size_ = 0;
  bool open_array_has_null_ = false;
};

}  // namespace faultline::pg
