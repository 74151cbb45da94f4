#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

namespace faultline::service {

/// Divides something of which there is so much among those who come, without knowing how many will. Whoever
/// is known by name may have as much as is free: alone half of it all, two of them a third each. So there is
/// always room for one who has nothing yet, whatever the others do. Not thread-safe.
class Shares {
 public:
  explicit Shares(std::size_t max) : max_(max) {}

  /// `account` is `Principal::account`; where it is empty nobody was asked, and only the whole counts. With
  /// `extra` there is so much more of it this time.
  [[nodiscard]] bool has_room(const std::string& account, std::size_t amount, std::size_t extra = 0) const {
    const std::size_t max = max_ + extra;
    if (amount > max || taken_ > max - amount) return false;
    if (account.empty()) return true;
    const auto mine = by_account_.find(account);
    return (mine == by_account_.end() ? 0 : mine->second) + amount <= max - taken_;
  }
  void take(const std::string& account, std::size_t amount) {
    taken_ += amount;
    if (!account.empty() && amount > 0) by_account_[account] += amount;
  }
  void give_back(const std::string& account, std::size_t amount) {
    taken_ -= amount;
    const auto mine = by_account_.find(account);
    if (mine == by_account_.end()) return;
    mine->second -= amount;
    if (mine->second == 0) by_account_.erase(mine);
  }
  [[nodiscard]] std::size_t taken() const { return taken_; }
  [[nodiscard]] std::size_t taken_by(const std::string& account) const {
    const auto mine = by_account_.find(account);
    return mine == by_account_.end() ? 0 : mine->second;
  }

 private:
  const std::size_t max_;
  std::size_t taken_ = 0;
  std::unordered_map<std::string, std::size_t> by_account_;
};

}  // namespace faultline::service
