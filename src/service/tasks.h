#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace faultline::service {

/// A few threads for calls that are not worth putting together. Thread-safe.
class Tasks {
 public:
  /// `refused`: it comes too late, and runs on the thread that posted it.
  using Task = std::move_only_function<void(bool refused)>;

  explicit Tasks(std::size_t threads);
  ~Tasks() { stop(); }
  Tasks(const Tasks&) = delete;
  Tasks& operator=(const Tasks&) = delete;

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
