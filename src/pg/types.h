#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "faultline/time.h"
#include "faultline/uuid.h"

namespace faultline::pg {

/// PostgreSQL type oids that Faultline sends and reads.
enum class Type : std::uint32_t {
  boolean = 16,
  bytea = 17,
  int8 = 20,
  int2 = 21,
  int4 = 23,
  text = 25,
  json = 114,
  float8 = 701,
  timestamptz = 1184,
  uuid = 2950,
  jsonb = 3802,
  boolean_array = 1000,
  bytea_array = 1001,
  int2_array = 1005,
  int4_array = 1007,
  text_array = 1009,
  int8_array = 1016,
  float8_array = 1022,
  timestamptz_array = 1185,
  uuid_array = 2951,
};

using BytesView = std::span<const std::byte>;
using Bytes = std::vector<std::byte>;

/// The type as which a C++ value is sent.
template <class T>
[[nodiscard]] consteval Type type_of() {
  if constexpr (std::same_as<T, bool>)
    return Type::boolean;
  else if constexpr (std::same_as<T, std::int16_t>)
    return Type::int2;
  else if constexpr (std::same_as<T, std::int32_t>)
    return Type::int4;
  else if constexpr (std::same_as<T, std::int64_t>)
    return Type::int8;
  else if constexpr (std::same_as<T, double>)
    return Type::float8;
  else if constexpr (std::same_as<T, Uuid>)
    return Type::uuid;
  else if constexpr (std::same_as<T, DatabaseTime>)
    return Type::timestamptz;
  else if constexpr (std::convertible_to<T, std::string_view>)
    return Type::text;
  else {
    static_assert(std::convertible_to<T, BytesView>, "no PostgreSQL type for this C++ type");
    return Type::bytea;
  }
}

}  // namespace faultline::pg
