#include "base/edit_distance.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace faultline {

std::size_t edit_distance(std::string_view one, std::string_view other) {
  // One row per character of `one`: the distances between its beginning and every beginning of `other`.
  std::vector<std::size_t> before_last(other.size() + 1);
  std::vector<std::size_t> last(other.size() + 1);
  std::vector<std::size_t> row(other.size() + 1);
  for (std::size_t j = 0; j <= other.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= one.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= other.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (one[i - 1] == other[j - 1] ? 0U : 1U);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[other.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> known) {
  // A word much longer than all that is known is no misspelling of it, and is not worth the time.
  constexpr std::size_t kWordMax = 64;
  if (word.size() > kWordMax) return std::nullopt;
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::nullopt : std::optional{*best};
}

}  // namespace faultline
