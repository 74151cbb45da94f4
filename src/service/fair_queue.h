#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

namespace faultline::service {

/// What waits, in a line for each account. The lines take turns, so that who has much to ask holds up nobody
/// who has little; within a line things keep their order. Not thread-safe.
template <class T>
class FairQueue {
 public:
  /// `account` is `Principal::account`: where nobody is asked who they are, there is one line.
  void push(const std::string& account, T item) {
    auto found = by_account_.find(account);
    if (found == by_account_.end())
      found = by_account_.emplace(account, lines_.insert(lines_.end(), Line{.account = account})).first;
    found->second->items.push_back(std::move(item));
    ++size_;
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// The one whose turn it is.
  [[nodiscard]] T& front() { return lines_.front().items.front(); }
  T pop() {
    Line& line = lines_.front();
    T item = std::move(line.items.front());
    line.items.pop_front();
    --size_;
    if (line.items.empty()) {
      by_account_.erase(line.account);
      lines_.pop_front();
    } else {
      lines_.splice(lines_.end(), lines_, lines_.begin());
    }
    return item;
  }

 private:
  struct Line {
    std::string account;
    std::deque<T> items{};
  };
  std::list<Line> lines_;  ///< none is empty; the first is next
  std::unordered_map<std::string, typename std::list<Line>::iterator> by_account_;
  std::size_t size_ = 0;
};

}  // namespace faultline::service
