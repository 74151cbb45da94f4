#include "service/thread_pool.h"

namespace faultline::service {

ThreadPool::ThreadPool(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

void ThreadPool::post(const std::string& account, Task task) {
  {
    std::unique_lock lock{mutex_};
    if (stopping_) {
      lock.unlock();
      task(true);
      return;
    }
    waiting_.push(account, std::move(task));
  }
  come_.notify_one();
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  come_.notify_all();
  threads_.clear();
}

void ThreadPool::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    come_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = waiting_.pop();
    lock.unlock();
    task(false);
    task = nullptr;
    lock.lock();
  }
}

}  // namespace faultline::service
