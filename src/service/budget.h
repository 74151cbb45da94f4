#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "service/shares.h"

namespace faultline::service {

/// How much may wait for the database at once. What is over it is refused at once, so that memory stays flat
/// however much comes in, and nobody's share is all of it. Thread-safe.
class Budget {
 public:
  /// Payloads and results that wait, all together.
  static constexpr std::size_t kBytesMax = std::size_t{128} * 1024 * 1024;
  /// Heartbeats and settlements have a quarter more room than the rest: it is they by which work that is done
  /// counts.
  enum class Rank { ordinary, first };

  explicit Budget(std::size_t items_max)
      : first_items_(items_max / 4), items_(items_max), bytes_(kBytesMax) {}

  [[nodiscard]] bool take(const std::string& account, std::size_t items, std::size_t bytes, Rank rank) {
    const bool first = rank == Rank::first;
    const std::lock_guard lock{mutex_};
    if (!items_.has_room(account, items, first ? first_items_ : 0) ||
        !bytes_.has_room(account, bytes, first ? kBytesMax / 4 : 0)) {
      ++refused_;
      return false;
    }
    items_.take(account, items);
    bytes_.take(account, bytes);
    return true;
  }
  void give_back(const std::string& account, std::size_t items, std::size_t bytes) {
    const std::lock_guard lock{mutex_};
    items_.give_back(account, items);
    bytes_.give_back(account, bytes);
  }

  [[nodiscard]] std::size_t items() const {
    const std::lock_guard lock{mutex_};
    return items_.taken();
  }
  [[nodiscard]] std::uint64_t refused() const {
    const std::lock_guard lock{mutex_};
    return refused_;
  }

 private:
  const std::size_t first_items_;
  mutable std::mutex mutex_;  // guards all below
  Shares items_;
  Shares bytes_;
  std::uint64_t refused_ = 0;
};

}  // namespace faultline::service
