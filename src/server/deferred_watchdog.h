#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "faultline/watchdog.h"

namespace faultline::server {

/// A watchdog that begins as soon as the database can be used, for a server that may be started before it.
class DeferredWatchdog {
 public:
  explicit DeferredWatchdog(WatchdogOptions options);
  DeferredWatchdog(const DeferredWatchdog&) = delete;
  DeferredWatchdog& operator=(const DeferredWatchdog&) = delete;
  ~DeferredWatchdog();

 private:
  void run();

  const WatchdogOptions options_;
  std::optional<Watchdog> watchdog_;  ///< of the thread, until it has ended
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace faultline::server
