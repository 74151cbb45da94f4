#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace faultline::service {

/// A few threads for calls that are not worth putting together. Thread-safe.
class ThreadPool {
 public:
  /// `refused`: it comes too late, and runs on the thread that posted it.
  using Task = std::move_only_function<void(bool refused)>;

  explicit ThreadPool(std::size_t threads);
  ~ThreadPool() { stop(); }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void post(Task task);
  /// Runs what waits, then ends.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<Task> waiting_;  // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  std::vector<std::jthread> threads_;
};

}  // namespace faultline::service
