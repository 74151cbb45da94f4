#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service/service.h"
#include "service/shares.h"

namespace faultline::service {

/// Deals out jobs to those who wait for them.
///
/// Every queue that somebody waits for has a wait list: the consumers with credit left stand in it, and take
/// turns. A turn is one claim, of at most a quantum while others wait, too. A claim that comes back short
/// ends the round: the wait list is dry. Then one consumer of it, not each, looks again after a while, which
/// grows from 2 ms to `poll_max`, or as soon as somebody says that there is something. While claims come back
/// full, several of a wait list are under way at once, but never two of one consumer.
///
/// Thread-safe.
class Dispatcher {
 public:
  struct Options {
    std::size_t claimers = 1;  ///< threads: claims under way at once
    std::size_t consumers_max = 0;
    std::chrono::milliseconds poll_max{500};
  };
  struct Hooks {
    std::function<ServiceResult<std::vector<ClaimedJob>>(const ClaimRequest&)> claim;
    std::function<void(std::vector<Lease>)> release;  ///< jobs that reached nobody
    /// Why a consumer gets nothing more, if it does not; none: it always does.
    std::function<std::optional<Problem>(const Principal&)> still_good{};
  };

  Dispatcher(Options options, Hooks hooks);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  /// The queue exists. The consumer must be gone before the dispatcher is.
  [[nodiscard]] ServiceResult<std::unique_ptr<Consumer>> add(const Principal& who, std::string queue,
                                                             std::string worker, Deliver deliver,
                                                             Ended ended);

  /// There may be due jobs in this queue.
  void wake(std::string_view queue);
  void wake_all();

  [[nodiscard]] std::size_t consumers() const;

  /// No more claims; everybody is told.
  void drain();
  /// Nothing is delivered any more.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  struct WaitList;
  struct ConsumerState;
  class ConsumerHandle;
  using Lock = std::unique_lock<std::mutex>;

  void grant(ConsumerState& consumer, std::int64_t credit, std::int64_t sequence);
  void leave(const std::shared_ptr<ConsumerState>& consumer);

  void work();
  void take_turn(Lock& lock, WaitList& wait_list);
  /// What a claim says about the wait list.
  void note(WaitList& wait_list, const ServiceResult<std::vector<ClaimedJob>>& jobs, std::size_t limit,
            std::uint64_t wakes);
  void hand_over(Lock& lock, ConsumerState& consumer, std::vector<ClaimedJob> jobs, std::int64_t sequence);
  /// Looks at everybody's key again, if it is time to.
  [[nodiscard]] bool look_at_keys();
  /// True, and it gets nothing more, if its key is not good any more.
  bool end_if_refused(const std::shared_ptr<ConsumerState>& consumer);
  [[nodiscard]] bool send_notice(Lock& lock);
  void end_turn(const std::shared_ptr<ConsumerState>& consumer);
  void update_waiting(ConsumerState& consumer);

  [[nodiscard]] bool runnable(const WaitList& wait_list) const;
  /// Puts the wait list where it will be seen at the right time.
  void arrange(WaitList& wait_list);
  void disarm(WaitList& wait_list);  // before `due` is changed
  void wake_consumers(WaitList& wait_list);
  [[nodiscard]] WaitList* next_wait_list();
  void wait(Lock& lock);

  const Options options_;
  const Hooks hooks_;
  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::condition_variable delivered_;
  std::unordered_map<std::string, std::unique_ptr<WaitList>>
      wait_lists_;  // never removed: as many as there are queues
  std::list<std::shared_ptr<ConsumerState>> consumers_;
  Shares places_;  // among those who wait
  std::deque<WaitList*> ready_;
  std::set<std::pair<Clock::time_point, WaitList*>> timers_;
  std::deque<std::shared_ptr<ConsumerState>> notices_;  // who is to be told that the server or its key ends
  Clock::time_point keys_due_{};                        // when they are looked at again
  std::size_t idle_ = 0;
  bool draining_ = false;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace faultline::service
