#pragma once

#include <expected>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace faultline::drills {

/// The drill could not be carried out. Says nothing about what it was to show.
class DrillError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The value, or a DrillError with the error's text: a drill has no other answer to an error of the database.
template <class T, class E>
T must(std::expected<T, E> result) {
  if (!result) throw DrillError(result.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace faultline::drills
