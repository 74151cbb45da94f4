#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "faultline/time.h"
#include "faultline/uuid.h"
#include "pg/types.h"

namespace faultline::pg {

/// PostgreSQL's binary format of single values, without their length. Numbers are big-endian.

template <std::unsigned_integral T>
void append_big_endian(std::string& out, T value) {
  for (std::size_t shift = sizeof(T) * 8; shift > 0;) {
    shift -= 8;
    out.push_back(static_cast<char>(static_cast<std::uint8_t>(value >> shift)));
  }
}

template <std::unsigned_integral T>
[[nodiscard]] T load_big_endian(const char* bytes) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value = static_cast<T>(static_cast<T>(value << 8) | static_cast<std::uint8_t>(bytes[i]));
  }
  return value;
}

/// Overwrites four bytes written earlier, for lengths and counts that are known late.
void store_big_endian(std::string& out, std::size_t offset, std::uint32_t value);

/// timestamptz counts microseconds from 2000-01-01; the extremes mean infinity on both sides.
[[nodiscard]] std::int64_t to_postgres_time(DatabaseTime time);
[[nodiscard]] DatabaseTime from_postgres_time(std::int64_t microseconds);

void append_value(std::string& out, bool value);
void append_value(std::string& out, std::int16_t value);
void append_value(std::string& out, std::int32_t value);
void append_value(std::string& out, std::int64_t value);
void append_value(std::string& out, double value);
void append_value(std::string& out, std::string_view value);
void append_value(std::string& out, BytesView value);
void append_value(std::string& out, const Uuid& value);
void append_value(std::string& out, DatabaseTime value);

/// The value preceded by its length in four bytes, as arrays and COPY have it.
template <class T>
void append_sized_value(std::string& out, const T& value) {
  const std::size_t at = out.size();
  append_big_endian(out, std::uint32_t{0});
  append_value(out, value);
  store_big_endian(out, at, static_cast<std::uint32_t>(out.size() - at - 4));
}

/// What stands in the place of a length when the value is NULL.
inline constexpr std::uint32_t kNullLength = 0xffff'ffff;

}  // namespace faultline::pg
