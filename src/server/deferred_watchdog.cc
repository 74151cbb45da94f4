#include "server/deferred_watchdog.h"

namespace faultline::server {
namespace {

constexpr std::chrono::milliseconds kTryEvery{1'000};

}  // namespace

DeferredWatchdog::DeferredWatchdog(WatchdogOptions options) : options_(std::move(options)) {
  thread_ = std::thread{[this] { run(); }};
}

DeferredWatchdog::~DeferredWatchdog() {
  {
    const std::lock_guard lock{mutex_};
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void DeferredWatchdog::run() {
  // Why it cannot begin yet is what the service is not ready for, and told there.
  for (;;) {
    if (auto started = Watchdog::start(options_)) {
      watchdog_.emplace(std::move(*started));
      return;
    }
    std::unique_lock lock{mutex_};
    if (changed_.wait_for(lock, kTryEvery, [&] { return stopped_; })) return;
  }
}

}  // namespace faultline::server
