#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "service/fair_queue.h"

namespace faultline::service {

/// A few threads for calls that are not worth putting together. Those who call take turns. Thread-safe.
class ThreadPool {
 public:
  /// `refused`: it comes too late, and runs on the thread that posted it.
  using Task = std::move_only_function<void(bool refused)>;

  explicit ThreadPool(std::size_t threads);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// `account` is `Principal::account` of who calls.
  void post(const std::string& account, Task task);
  /// Runs what waits, then ends.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable come_;
  FairQueue<Task> waiting_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace faultline::service
