#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "service/lease_registry.h"
#include "service/monitored_store.h"
#include "service/service.h"

namespace faultline::service {

/// Tells those who watch what happens now: what this service does, and, from the database, what the fence
/// refused anywhere and how many jobs there are. While nobody watches it does nothing.
///
/// It is told in order, on one thread. If that thread cannot keep up, events are left out. Thread-safe.
class EventBroadcaster {
 public:
  using StillGood = std::function<std::optional<Problem>(const Principal&)>;
  EventBroadcaster(MonitoredStore& store, StillGood still_good);
  ~EventBroadcaster() { stop(); }
  EventBroadcaster(const EventBroadcaster&) = delete;
  EventBroadcaster& operator=(const EventBroadcaster&) = delete;

  using Next = std::function<void(const std::shared_ptr<const LiveEvent>&)>;
  [[nodiscard]] std::unique_ptr<Service::EventSubscription> watch(const Principal& who, Next next,
                                                                  Ended ended);
  [[nodiscard]] bool watched() const { return watchers_count_.load(std::memory_order_relaxed) > 0; }

  // What happened. Cheap while nobody watches.
  void enqueued(std::span<const NewJob> jobs, std::span<const Submission> submissions);
  void claimed(std::span<const ClaimedJob> jobs);
  /// `known` is what the registry has of each lease.
  void settled(std::span<const Settlement> settlements, std::span<const Verdict> verdicts,
               std::span<const std::optional<LeaseRegistry::Entry>> known);
  /// A write was refused: the evidence is looked at soon.
  void refused();
  void queue_changed(const QueueOverview& queue);

  /// Nobody is told anything any more.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Watcher;
  class Subscription;
  using Overviews = std::vector<QueueOverview>;
  struct Item {
    std::shared_ptr<const LiveEvent> event;
    std::shared_ptr<const Overviews> snapshot{};  ///< of `queues`: for those who may see only some of them
  };

  void leave(const std::shared_ptr<Watcher>& watcher);
  void tell(std::string name, std::string queue, std::string json,
            std::shared_ptr<const Overviews> snapshot = {});

  void deliver();
  void hand_to(Watcher& watcher, const Item& item);

  void observe();
  void read_evidence(Store& store);
  void read_queues(Store& store);

  MonitoredStore& store_;
  const StillGood still_good_;
  std::atomic<std::size_t> watchers_count_{0};

  std::mutex mutex_;  // guards what follows
  std::condition_variable told_;
  std::condition_variable handed_;
  std::condition_variable kicked_;
  std::list<std::shared_ptr<Watcher>> watchers_;
  std::deque<Item> items_;
  std::uint64_t last_id_ = 0;
  bool kick_ = false;
  bool stopping_ = false;
  Clock::time_point watched_since_{};

  // The observer's own.
  std::set<std::pair<DatabaseTime, Uuid>> seen_;  // evidence that was told, by its moment and its id
  DatabaseTime evidence_since_{};
  Clock::time_point observed_since_{};

  std::jthread deliverer_;
  std::jthread observer_;
};

}  // namespace faultline::service
