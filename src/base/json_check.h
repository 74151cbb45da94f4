#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace faultline {

struct JsonProblem {
  std::size_t offset = 0;  ///< of the byte at which it shows
  std::string what;
};

/// Whether bytes are one JSON text (RFC 8259): valid UTF-8, well-formed, nested at most `depth_max` deep.
/// Reads the bytes once, builds nothing and does not recurse, so that a hostile text costs no more than
/// an honest one. The text itself is never changed: what was submitted is what a handler gets.
[[nodiscard]] std::optional<JsonProblem> find_json_problem(std::span<const std::byte> text,
                                                           std::size_t depth_max);

}  // namespace faultline
