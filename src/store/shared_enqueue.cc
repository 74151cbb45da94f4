#include "store/shared_enqueue.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace faultline::store {
namespace {

/// As many commits can be under way before others wait to share the next one: while one is being written to
/// disk, another is worked on.
constexpr std::size_t kUnderWayMax = 2;
/// In one commit.
constexpr std::size_t kJobsMax = 256;
/// Of a call that may share a commit.
constexpr std::size_t kSharedJobsMax = 16;
constexpr std::size_t kSharedBytesMax = std::size_t{64} * 1024;
/// Who has waited for so long goes by himself: the others may be stuck on connections that are dead.
constexpr std::chrono::milliseconds kPatience{100};

/// What may have been added must not be added again.
bool may_concern_one(const Error& error) { return error.code != ErrorCode::outcome_unknown; }

}  // namespace

bool SharedEnqueue::takes(std::span<const NewJob> jobs) {
  std::size_t bytes = 0;
  for (const NewJob& job : jobs) bytes += job.payload.size();
  return jobs.size() <= kSharedJobsMax && bytes <= kSharedBytesMax &&
         std::ranges::none_of(jobs, [](const NewJob& job) { return job.idempotency_key.has_value(); });
}

SharedEnqueue::Reply SharedEnqueue::enqueue(std::span<const NewJob> jobs) {
  Call call{.jobs = jobs};
  std::unique_lock lock{mutex_};
  if (!wait_for_turn(call, lock)) {
    if (call.reply) return std::move(*call.reply);
    lock.unlock();
    return add_(jobs);
  }
  const std::vector<Call*> others = take_waiting(jobs.size());
  lock.unlock();
  try {
    Reply mine = add_for(call, others);
    end_turn(others);
    return mine;
  } catch (...) {
    end_turn(others);
    throw;
  }
}

bool SharedEnqueue::wait_for_turn(Call& call, std::unique_lock<std::mutex>& lock) {
  if (under_way_ < kUnderWayMax) {
    ++under_way_;
    return true;
  }
  waiting_.push_back(&call);
  const bool in_time =
      call.changed.wait_for(lock, kPatience, [&] { return call.taken || call.leads || call.over; });
  if (!in_time) {
    std::erase(waiting_, &call);
    return false;
  }
  if (call.leads) return true;
  call.changed.wait(lock, [&] { return call.over; });
  return false;
}

std::vector<SharedEnqueue::Call*> SharedEnqueue::take_waiting(std::size_t jobs) {
  std::vector<Call*> taken;
  while (!waiting_.empty() && jobs + waiting_.front()->jobs.size() <= kJobsMax) {
    jobs += waiting_.front()->jobs.size();
    taken.push_back(waiting_.front());
    taken.back()->taken = true;
    waiting_.pop_front();
  }
  return taken;
}

SharedEnqueue::Reply SharedEnqueue::add_for(const Call& call, std::span<Call* const> others) {
  if (others.empty()) return add_(call.jobs);
  std::vector<NewJob> all{call.jobs.begin(), call.jobs.end()};
  for (const Call* other : others) all.insert(all.end(), other->jobs.begin(), other->jobs.end());
  const Reply shared = add_(all);
  if (!shared) {
    if (may_concern_one(shared.error())) return add_(call.jobs);
    for (Call* other : others) other->reply = shared;
    return shared;
  }
  auto next = shared->begin();
  const auto take = [&](std::size_t count) {
    const auto first = std::exchange(next, next + static_cast<std::ptrdiff_t>(count));
    return std::vector<Submission>{first, next};
  };
  Reply mine = take(call.jobs.size());
  for (Call* other : others) other->reply = take(other->jobs.size());
  return mine;
}

void SharedEnqueue::end_turn(std::span<Call* const> others) {
  const std::lock_guard lock{mutex_};
  for (Call* other : others) {
    other->over = true;
    other->changed.notify_one();
  }
  if (waiting_.empty()) {
    --under_way_;
    return;
  }
  Call* next = waiting_.front();
  waiting_.pop_front();
  next->leads = true;
  next->changed.notify_one();
}

}  // namespace faultline::store
