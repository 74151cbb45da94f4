#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "faultline/job.h"

namespace faultline {

/// The words of an enumeration, in its order: of JobState, Delivery, Encoding, Outcome::Kind and StaleReason.
template <class Enum>
[[nodiscard]] std::span<const std::string_view> words_of();

/// "at_least_once, at_most_once, hold"
template <class Enum>
[[nodiscard]] std::string list_of_words() {
  std::string list;
  for (const std::string_view word : words_of<Enum>()) list.append(list.empty() ? "" : ", ").append(word);
  return list;
}

[[nodiscard]] std::string_view to_string(Encoding encoding);
[[nodiscard]] std::optional<Encoding> parse_encoding(std::string_view text);

/// What a worker does when it reports this outcome, as the evidence, the metrics and people call it.
[[nodiscard]] std::string_view verb_of(Outcome::Kind outcome);

}  // namespace faultline
