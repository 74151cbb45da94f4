#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/json_text.h"
#include "faultline/job.h"

namespace faultline::http {

/// Why a value in a body was refused, and where: `jobs[3].delay_ms`.
class Refusal {
 public:
  /// Returns false, so that a reader can return it.
  bool at(std::string what) {
    what_ = std::move(what);
    return false;
  }
  void inside(std::string_view name) {
    where_.insert(0, where_.empty() || where_.front() == '[' ? std::string{name} : std::string{name} + '.');
  }
  void inside(std::size_t index) {
    std::string text = "[" + std::to_string(index) + "]";
    if (!where_.empty() && where_.front() != '[') text += '.';
    where_.insert(0, text);
  }
  [[nodiscard]] std::string message() const { return where_.empty() ? what_ : where_ + ": " + what_; }

 private:
  std::string where_;
  std::string what_;
};

// Readers of one value. False: it was refused.

bool read(Json value, std::string& into, Refusal& refusal);
bool read(Json value, bool& into, Refusal& refusal);
bool read(Json value, std::int64_t& into, Refusal& refusal);
bool read(Json value, double& into, Refusal& refusal);
bool read(Json value, std::chrono::milliseconds& into, Refusal& refusal);
bool read(Json value, DatabaseTime& into, Refusal& refusal);
bool read(Json value, Uuid& into, Refusal& refusal);
bool read(Json value, JobId& into, Refusal& refusal);
bool read(Json value, FenceToken& into, Refusal& refusal);
bool read(Json value, Delivery& into, Refusal& refusal);
bool read(Json value, JobState& into, Refusal& refusal);
bool read(Json value, Outcome::Kind& into, Refusal& refusal);
bool read(Json value, Lease& into, Refusal& refusal);

template <class T>
  requires(std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, std::int64_t>)
bool read(Json value, T& into, Refusal& refusal) {
  std::int64_t wide = 0;
  if (!read(value, wide, refusal)) return false;
  if (!std::in_range<T>(wide)) return refusal.at("the number is out of bounds");
  into = static_cast<T>(wide);
  return true;
}

template <class T>
bool read(Json value, std::optional<T>& into, Refusal& refusal) {
  return read(value, into.emplace(), refusal);
}

template <class T>
bool read(Json value, std::vector<T>& into, Refusal& refusal) {
  if (!value.is_array()) return refusal.at("an array is expected");
  return value.elements([&](Json element) {
    if (read(element, into.emplace_back(), refusal)) return true;
    refusal.inside(into.size() - 1);
    return false;
  });
}

/// One member of an object that is read into a T. A null is as if it were not there, except where
/// `null_counts`.
template <class T>
struct Field {
  std::string_view name;
  bool (*read)(Json value, T& into, Refusal& refusal);
  bool required = false;
  bool null_counts = false;
};

/// A field that goes into a member as it is: `member<&NewJob::queue>("queue")`.
template <auto Member, class T>
bool read_member(Json value, T& into, Refusal& refusal) {
  return read(value, into.*Member, refusal);
}
template <class T>
struct MemberOwner;
template <class V, class T>
struct MemberOwner<V T::*> {
  using type = T;
};
template <auto Member>
constexpr auto member(std::string_view name, bool required = false) {
  using T = typename MemberOwner<decltype(Member)>::type;
  return Field<T>{.name = name, .read = &read_member<Member, T>, .required = required};
}

/// The known name that was probably meant, or nothing.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string_view> known);

/// "there is no field "colour"; did you mean "color"?"
[[nodiscard]] std::string unknown_field(std::string_view name, std::span<const std::string_view> known);

/// Fields that are not known or stand twice are errors: an option that is misspelt must not be lost silently.
template <class T, std::size_t N>
bool read_object(Json value, T& into, const Field<T> (&fields)[N], Refusal& refusal) {
  static_assert(N <= 64);
  if (!value.is_object()) return refusal.at("an object is expected");
  std::uint64_t seen = 0;
  std::uint64_t given = 0;
  const bool good = value.members([&](const std::string& name, Json member) {
    std::size_t at = 0;
    while (at < N && fields[at].name != name) ++at;
    if (at == N) {
      std::string_view known[N];
      for (std::size_t i = 0; i < N; ++i) known[i] = fields[i].name;
      return refusal.at(unknown_field(name, known));
    }
    const std::uint64_t bit = std::uint64_t{1} << at;
    if ((seen & bit) != 0) {
      refusal.inside(name);
      return refusal.at("it is given twice");
    }
    seen |= bit;
    if (member.is_null() && !fields[at].null_counts) return true;
    given |= bit;
    if (fields[at].read(member, into, refusal)) return true;
    refusal.inside(name);
    return false;
  });
  if (!good) return false;
  for (std::size_t i = 0; i < N; ++i) {
    if (!fields[i].required || ((given >> i) & 1U) != 0) continue;
    refusal.inside(fields[i].name);
    return refusal.at("it is missing");
  }
  return true;
}

}  // namespace faultline::http
