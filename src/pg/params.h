#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"

namespace faultline::pg {

/// PostgreSQL type oids that Faultline sends and reads.
enum class Type : std::uint32_t {
  boolean = 16, bytea = 17, int8 = 20, int2 = 21, int4 = 23, text = 25, json = 114,
  float8 = 701, timestamptz = 1184, uuid = 2950, jsonb = 3802,
  boolean_array = 1000, bytea_array = 1001, int2_array = 1005, int4_array = 1007, text_array = 1009,
  int8_array = 1016, float8_array = 1022, timestamptz_array = 1185, uuid_array = 2951,
};

using BytesView = std::span<const std::byte>;
using Bytes = std::vector<std::byte>;

/// The parameters of one execution, encoded in PostgreSQL's binary format as they are added.
/// One buffer holds all values, so that a batch of a thousand rows costs a handful of allocations.
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
  Params& add(BytesView value);         ///< bytea
  Params& add(const Uuid& value);
  Params& add(DatabaseTime value);      ///< timestamptz; time_point::min()/max() are -infinity/infinity
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

 private:
  friend class Connection;
  template <class T>
  static Type type_of();
  // The implementation's members: types, offsets and lengths of values in one buffer.
  std::vector<std::uint32_t> types_;
};

}  // namespace faultline::pg
