#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "service/fair_queue.h"
#include "service/problem.h"

namespace faultline::service {

/// Whether an error of a shared batch may be the fault of one of its items, so that the others must not
/// suffer for it. What may have been done must not be done again.
[[nodiscard]] inline bool may_concern_one(const Problem& problem) {
  return problem.code != Code::outcome_unknown;
}

/// Puts calls that come at the same time into one batch for the database. While a batch is under way the next
/// one gathers: the busier the database, the larger the batches.
///
/// A call's items stay together and in order, and those who call take turns. If a shared batch fails in a way
/// that may be the fault of one call, each of its calls is done by itself. Thread-safe.
template <class Item, class Reply>
class Coalescer {
 public:
  using Replies = std::vector<Reply>;

  /// The group of a call that shares a batch with no other.
  static constexpr std::int64_t kAlone = -1;

  struct Call {
    std::vector<Item> items;
    Done<Replies> done;
    std::int64_t group = 0;  ///< only calls of one group share a batch
    std::size_t bytes = 0;
    std::string account{};  ///< `Principal::account` of who calls
  };
  struct Options {
    std::size_t threads = 1;
    std::size_t items_max = 1'000;  ///< in a batch, unless one call alone has more
    std::size_t bytes_max = std::size_t{8} * 1024 * 1024;
    /// A batch that could not be done now is done call by call for as long as this since it began: one of its
    /// calls may wait for somebody, or all of them for the database.
    std::chrono::milliseconds patience{10'000};
    /// Does a batch. An error says that nothing was changed, or that it is not known.
    std::function<ServiceResult<Replies>(std::span<const Item>, std::int64_t group)> run;
    /// Where given: no job stands twice in a batch. The second call waits for the next one.
    std::function<JobId(const Item&)> job{};
  };

  explicit Coalescer(Options options) : options_(std::move(options)) {
    for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Coalescer() { stop(); }
  Coalescer(const Coalescer&) = delete;
  Coalescer& operator=(const Coalescer&) = delete;

  /// False, and the call is left untouched, when it has been stopped.
  [[nodiscard]] bool submit(Call& call) {
    bool wake = false;
    {
      const std::lock_guard lock{mutex_};
      if (stopping_) return false;
      const std::string account = call.account;
      waiting_.push(account, std::move(call));
      wake = idle_ > 0;
    }
    if (wake) come_.notify_one();
    return true;
  }

  /// Answers what waits, then ends.
  void stop() {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
    }
    come_.notify_all();
    threads_.clear();
  }

 private:
  void work() {
    std::unique_lock lock{mutex_};
    for (;;) {
      if (waiting_.empty()) {
        if (stopping_) return;
        ++idle_;
        come_.wait(lock);
        --idle_;
        continue;
      }
      std::vector<Call> batch = take();
      lock.unlock();
      run(batch);
      lock.lock();
    }
  }

  /// The longest run of calls, as their turns come, that may share a batch.
  std::vector<Call> take() {
    std::vector<Call> batch;
    std::size_t items = 0;
    std::size_t bytes = 0;
    std::unordered_set<JobId> jobs;
    while (!waiting_.empty()) {
      Call& next = waiting_.front();
      if (!batch.empty()) {
        const bool fits = next.group == batch.front().group && next.group != kAlone &&
                          items + next.items.size() <= options_.items_max &&
                          bytes + next.bytes <= options_.bytes_max;
        if (!fits || (options_.job && has_one_of(jobs, next))) break;
      }
      items += next.items.size();
      bytes += next.bytes;
      // The jobs of a call that stays alone in its batch are compared with nothing.
      if (options_.job && waiting_.size() > 1) {
        for (const Item& item : next.items) jobs.insert(options_.job(item));
      }
      batch.push_back(waiting_.pop());
    }
    return batch;
  }

  [[nodiscard]] bool has_one_of(const std::unordered_set<JobId>& jobs, const Call& call) const {
    for (const Item& item : call.items) {
      if (jobs.contains(options_.job(item))) return true;
    }
    return false;
  }

  void run(std::vector<Call>& batch) {
    if (batch.size() == 1) {
      run_alone(batch.front());
      return;
    }
    std::vector<Item> all;
    std::size_t count = 0;
    for (const Call& call : batch) count += call.items.size();
    all.reserve(count);
    for (Call& call : batch) std::ranges::move(call.items, std::back_inserter(all));
    const auto give_up_at = std::chrono::steady_clock::now() + options_.patience;
    auto replies = options_.run(all, batch.front().group);
    const auto try_alone = [&] {
      return may_concern_one(replies.error()) &&
             (replies.error().code != Code::unavailable || std::chrono::steady_clock::now() < give_up_at);
    };
    std::size_t at = 0;
    for (Call& call : batch) {
      const std::size_t size = call.items.size();
      if (replies) {
        const auto first = replies->begin() + static_cast<std::ptrdiff_t>(at);
        call.done(Replies(std::make_move_iterator(first),
                          std::make_move_iterator(first + static_cast<std::ptrdiff_t>(size))));
      } else if (try_alone()) {
        call.done(options_.run(std::span{all}.subspan(at, size), call.group));
      } else {
        call.done(std::unexpected(replies.error()));
      }
      at += size;
    }
  }

  void run_alone(Call& call) { call.done(options_.run(call.items, call.group)); }

  const Options options_;
  std::mutex mutex_;
  std::condition_variable come_;
  FairQueue<Call> waiting_;  // guarded by mutex_, as what follows
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace faultline::service
