#include "service/tasks.h"

namespace faultline::service {

Tasks::Tasks(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

void Tasks::post(Task task) {
  {
    std::unique_lock lock{mutex_};
    if (stopping_) {
      lock.unlock();
      task(true);
      return;
    }
    waiting_.push_back(std::move(task));
  }
  come_.notify_one();
}

void Tasks::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  come_.notify_all();
  threads_.clear();
}

void Tasks::work() {
  std::unique_lock lock{mutex_};
  for (;;) {
    come_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task(false);
    task = nullptr;
    lock.lock();
  }
}

}  // namespace faultline::service
