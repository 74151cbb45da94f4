#pragma once

#include <string>
#include <vector>

#include "base/fields.h"

namespace faultline::testing {

// Some value for a member: within its bounds, and not what it is made with.

inline void fill(const FieldInfo& field, std::string& into) { into = "a " + std::string{field.name}; }
inline void fill(const FieldInfo& /*field*/, bool& into) { into = true; }
inline void fill(const FieldInfo& field, int& into) {
  into = field.max == FieldInfo::kUnbounded ? 7 : static_cast<int>(field.max - 1);
}
inline void fill(const FieldInfo& /*field*/, std::int64_t& into) { into = 8; }
inline void fill(const FieldInfo& /*field*/, double& into) { into = 0.25; }
inline void fill(const FieldInfo& field, std::chrono::milliseconds& into) {
  into = std::chrono::milliseconds{field.min + 1'234};
}
inline void fill(const FieldInfo& /*field*/, std::chrono::microseconds& into) {
  into = std::chrono::microseconds{15'999};
}
inline void fill(const FieldInfo& /*field*/, DatabaseTime& into) {
  into = DatabaseTime{std::chrono::seconds{1'924'992'000} + std::chrono::microseconds{123'456}};
}
inline void fill(const FieldInfo& /*field*/, Uuid& into) { into = Uuid::random(); }
inline void fill(const FieldInfo& field, JobId& into) { fill(field, into.value); }
inline void fill(const FieldInfo& /*field*/, FenceToken& into) { into = FenceToken{9}; }
inline void fill(const FieldInfo& /*field*/, JobState& into) { into = JobState::held; }
inline void fill(const FieldInfo& /*field*/, Delivery& into) { into = Delivery::hold; }
inline void fill(const FieldInfo& /*field*/, Encoding& into) { into = Encoding::bytes; }
inline void fill(const FieldInfo& /*field*/, StaleReason& into) { into = StaleReason::lease_expired; }
inline void fill(const FieldInfo& /*field*/, std::vector<std::string>& into) {
  into = {"one", "zw\u00f6lf \"12\""};
}
template <class T>
void fill(const FieldInfo& field, std::optional<T>& into) {
  fill(field, into.emplace());
}

/// A value of a struct in which every member of its field table has been set.
template <class Struct>
[[nodiscard]] Struct filled() {
  Struct value{};
  for_each_field<Struct>([&]<class T>(const Field<Struct, T>& field) {
    if constexpr (std::same_as<T, Lease>) {
      field.of(value) = filled<Lease>();
    } else {
      fill(field, field.of(value));
    }
    if (field.form == Form::payload) {
      if constexpr (std::same_as<T, std::string>) field.of(value) = std::string{"\0\xff{", 3};
    }
  });
  return value;
}

}  // namespace faultline::testing
