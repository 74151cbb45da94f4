#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fields.h"
#include "base/words.h"
#include "pg/types.h"

namespace faultline::store {

// A new job's members as what their columns take. An integer's column is as wide as its bounds need.

template <std::size_t I>
inline constexpr auto kNewJobField = std::get<I>(kFields<NewJob>);

inline constexpr std::int64_t kInt2Max = std::numeric_limits<std::int16_t>::max();
inline constexpr std::int64_t kInt4Max = std::numeric_limits<std::int32_t>::max();

template <std::int64_t Max>
[[nodiscard]] constexpr auto narrowed(std::int64_t value) {
  if constexpr (Max <= kInt2Max) {
    return static_cast<std::int16_t>(value);
  } else if constexpr (Max <= kInt4Max) {
    return static_cast<std::int32_t>(value);
  } else {
    return value;
  }
}

template <std::size_t I>
[[nodiscard]] auto column_value(std::string_view text) {
  if constexpr (kNewJobField<I>.form == Form::payload) {
    return std::as_bytes(std::span{text});
  } else {
    return text;
  }
}
template <std::size_t I>
[[nodiscard]] std::string_view column_value(Encoding encoding) {
  return to_string(encoding);
}
template <std::size_t I>
[[nodiscard]] std::string_view column_value(Delivery delivery) {
  return to_string(delivery);
}
template <std::size_t I>
[[nodiscard]] auto column_value(int number) {
  return narrowed<kNewJobField<I>.max>(number);
}
template <std::size_t I>
[[nodiscard]] auto column_value(std::chrono::milliseconds duration) {
  return narrowed<kNewJobField<I>.max>(duration.count());
}
template <std::size_t I>
[[nodiscard]] DatabaseTime column_value(DatabaseTime time) {
  return time;
}
template <std::size_t I, class T>
[[nodiscard]] auto column_value(const std::optional<T>& value) {
  using Value = decltype(column_value<I>(*value));
  return value ? std::optional<Value>{column_value<I>(*value)} : std::nullopt;
}

}  // namespace faultline::store
