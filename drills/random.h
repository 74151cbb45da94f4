#pragma once

#include <cstddef>
#include <cstdint>

namespace faultline::drills {

/// SplitMix64: the same numbers from the same seed with every compiler and library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// 0 to `bound` - 1.
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }
  /// `first` to `last`.
  std::int64_t between(std::int64_t first, std::int64_t last) {
    return first + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(last - first + 1));
  }
  bool percent(unsigned chance) { return below(100) < chance; }

 private:
  std::uint64_t state_;
};

}  // namespace faultline::drills
