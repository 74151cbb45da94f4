#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "faultline/event.h"
#include "faultline/store.h"
#include "service/problem.h"

namespace faultline::service {

/// The store, as far as there is one: opened in the background as soon as the database can be reached,
/// and probed at every second from then on, on a connection of its own. While the last look failed nobody
/// gets it, so that calls are refused at once instead of waiting in vain. Thread-safe.
class MonitoredStore {
 public:
  struct Options {
    StoreOptions store;
    EventSink log;
  };

  explicit MonitoredStore(Options options);
  ~MonitoredStore() { stop(); }
  MonitoredStore(const MonitoredStore&) = delete;
  MonitoredStore& operator=(const MonitoredStore&) = delete;

  /// The store, for as long as this object lives; or why there is none now.
  [[nodiscard]] ServiceResult<Store*> get() const;
  /// Another one for queries that must not wait for the calls. It gives up soon.
  [[nodiscard]] ServiceResult<std::shared_ptr<Store>> reader() const;

  [[nodiscard]] bool usable() const { return usable_.load(std::memory_order_acquire) != nullptr; }
  /// Why not, without what the database said of itself; empty when usable.
  [[nodiscard]] std::string why_not() const;

  /// Whether a queue is there, as of the last look. Queues are never dropped.
  [[nodiscard]] bool knows_queue(std::string_view name) const;
  /// The same, and asks the database about a name that is not known.
  [[nodiscard]] ServiceResult<bool> queue_exists(std::string_view name);
  void remember_queue(std::string_view name);
  void forget_queue(const std::string& name);

  void stop();

 private:
  void run();
  [[nodiscard]] Expected<void> open();
  [[nodiscard]] Expected<void> probe(Store& store);
  void lost(const Error& error);
  /// False: it is to stop.
  [[nodiscard]] bool pause(std::chrono::milliseconds time);
  [[nodiscard]] Problem unavailable() const;

  const Options options_;
  std::atomic<Store*> usable_{nullptr};
  std::unique_ptr<Store> store_;                     // set once, by the thread
  std::chrono::steady_clock::time_point lost_at_{};  // the thread's
  mutable std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;  // guarded by mutex_, as what follows
  std::shared_ptr<Store> reader_;
  std::string why_not_ = "the database has not been reached yet";
  std::string cause_;  ///< the database's own words for it
  std::set<std::string, std::less<>> queues_;
  std::jthread thread_;
};

}  // namespace faultline::service
