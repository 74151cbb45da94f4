#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace faultline::service {

/// How much may wait for the database at once. What is over it is refused at once, so that memory stays flat
/// however much comes in. Thread-safe.
class Budget {
 public:
  /// Payloads and results that wait, all together.
  static constexpr std::size_t kBytesMax = std::size_t{128} * 1024 * 1024;

  explicit Budget(std::size_t items_max) : items_max_(items_max) {}

  [[nodiscard]] bool take(std::size_t items, std::size_t bytes) {
    const std::size_t items_now = items_.fetch_add(items, std::memory_order_relaxed) + items;
    const std::size_t bytes_now = bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (items_now <= items_max_ && bytes_now <= kBytesMax) return true;
    give_back(items, bytes);
    refused_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  void give_back(std::size_t items, std::size_t bytes) {
    items_.fetch_sub(items, std::memory_order_relaxed);
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  [[nodiscard]] std::size_t items() const { return items_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  const std::size_t items_max_;
  std::atomic<std::size_t> items_{0};
  std::atomic<std::size_t> bytes_{0};
  std::atomic<std::uint64_t> refused_{0};
};

}  // namespace faultline::service
