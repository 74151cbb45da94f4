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
#include "faultline/store.h"

namespace faultline::codec {

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
bool read(Json value, NewJob& into, Refusal& refusal);
bool read(Json value, QueueSettings& into, Refusal& refusal);
bool read(Json value, Settlement& into, Refusal& refusal);
bool read(Json value, ProgressReport& into, Refusal& refusal);
bool read(Json value, EffectKey& into, Refusal& refusal);
bool read(Json value, EffectFinding& into, Refusal& refusal);
bool read(Json value, EffectResult& into, Refusal& refusal);
bool read(Json value, ListRequest& into, Refusal& refusal);
/// What names a call, so that it can be sent again.
bool read_call_id(Json value, Uuid& into, Refusal& refusal);

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
struct Member {
  std::string_view name;
  bool (*read)(Json value, T& into, Refusal& refusal);
  bool required = false;
  bool null_counts = false;
  std::string_view instead_of{};  ///< another member that says the same: only one of both may be there
};

/// A member that goes into one of the struct as it is: `member<&NewJob::queue>("queue")`.
template <auto Pointer, class T>
bool read_member(Json value, T& into, Refusal& refusal) {
  return read(value, into.*Pointer, refusal);
}
template <class T>
struct MemberOwner;
template <class V, class T>
struct MemberOwner<V T::*> {
  using type = T;
};
template <auto Pointer>
constexpr auto member(std::string_view name, bool required = false) {
  using T = typename MemberOwner<decltype(Pointer)>::type;
  return Member<T>{.name = name, .read = &read_member<Pointer, T>, .required = required};
}

/// "there is no field "colour"; did you mean "color"?"
[[nodiscard]] std::string unknown_field(std::string_view name, std::span<const std::string_view> known);

/// Members that are not known or stand twice are errors: an option that is misspelt must not be lost
/// silently.
template <class T>
bool read_object(Json value, T& into, std::span<const std::type_identity_t<Member<T>>> members,
                 Refusal& refusal) {
  if (!value.is_object()) return refusal.at("an object is expected");
  const auto position = [&](std::string_view name) {
    std::size_t at = 0;
    while (at < members.size() && members[at].name != name) ++at;
    return at;
  };
  const auto bit = [](std::size_t at) { return std::uint64_t{1} << at; };
  std::uint64_t seen = 0;
  std::uint64_t given = 0;
  const bool good = value.members([&](const std::string& name, Json content) {
    const std::size_t at = position(name);
    if (at == members.size()) {
      std::vector<std::string_view> known;
      for (const Member<T>& each : members) known.push_back(each.name);
      return refusal.at(unknown_field(name, known));
    }
    const Member<T>& member = members[at];
    if ((seen & bit(at)) != 0) {
      refusal.inside(name);
      return refusal.at("it is given twice");
    }
    seen |= bit(at);
    if (content.is_null() && !member.null_counts) return true;
    given |= bit(at);
    if (!member.instead_of.empty() && (given & bit(position(member.instead_of))) != 0) {
      const auto [shorter, longer] = std::minmax(member.name, member.instead_of);
      return refusal.at("both " + std::string{shorter} + " and " + std::string{longer} +
                        " are given; give one of them");
    }
    if (member.read(content, into, refusal)) return true;
    refusal.inside(name);
    return false;
  });
  if (!good) return false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!members[i].required || (given & bit(i)) != 0) continue;
    refusal.inside(members[i].name);
    return refusal.at("it is missing");
  }
  return true;
}

}  // namespace faultline::codec
