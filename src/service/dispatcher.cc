#include "service/dispatcher.h"

#include <algorithm>

namespace faultline::service {
namespace {

using std::chrono::milliseconds;

/// The most that one turn takes while others wait.
constexpr std::int64_t kQuantum = 100;
constexpr std::int64_t kClaimMax = 1'000;
constexpr milliseconds kPollMin{2};
/// How soon a claim that failed is tried again.
constexpr milliseconds kFailedMin{50};
/// How often the keys of those who wait are looked at. No job is claimed for one that is not good.
constexpr milliseconds kKeysEvery{500};

}  // namespace

struct Dispatcher::WaitList {
  explicit WaitList(std::string queue) : name(std::move(queue)) {}

  const std::string name;
  std::list<std::shared_ptr<ConsumerState>>
      ring;                   // those with credit and no claim under way; the front is next
  std::size_t under_way = 0;  // claims
  bool dry = false;           // the last claim came back short: the next look is at `due`
  bool flowing = false;       // the last claim came back full
  std::uint64_t wakes = 0;
  Clock::time_point due{};
  Clock::time_point looked_at{};
  milliseconds wait = kPollMin;
  bool is_ready = false;  // stands in ready_
  bool has_timer = false;
};

struct Dispatcher::ConsumerState {
  WaitList* wait_list = nullptr;
  Principal who;
  std::string worker;
  Deliver deliver;
  Ended ended;
  std::int64_t credit = 0;
  std::int64_t delivered = 0;
  std::int64_t sequence = 0;
  std::list<std::shared_ptr<ConsumerState>>::iterator place;  // in consumers_
  std::list<std::shared_ptr<ConsumerState>>::iterator turn;   // in the ring, if it waits
  bool waits = false;                                         // stands in the ring
  bool busy = false;                                          // a claim or a delivery is under way
  bool delivering = false;
  bool gone = false;
  std::optional<Problem> refused;  // its key is not good any more
  bool fresh = true;               // was never granted anything
};

class Dispatcher::ConsumerHandle : public Consumer {
 public:
  ConsumerHandle(Dispatcher& dispatcher, std::shared_ptr<ConsumerState> consumer)
      : dispatcher_(dispatcher), consumer_(std::move(consumer)) {}
  ~ConsumerHandle() override { dispatcher_.leave(consumer_); }
  ConsumerHandle(const ConsumerHandle&) = delete;
  ConsumerHandle& operator=(const ConsumerHandle&) = delete;

  void grant(std::int64_t credit, std::int64_t sequence) override {
    dispatcher_.grant(*consumer_, credit, sequence);
  }

 private:
  Dispatcher& dispatcher_;
  std::shared_ptr<ConsumerState> consumer_;
};

Dispatcher::Dispatcher(Options options, Hooks hooks)
    : options_(options), hooks_(std::move(hooks)), places_(options.consumers_max) {
  for (std::size_t i = 0; i < options_.claimers; ++i) threads_.emplace_back([this] { work(); });
}

Dispatcher::~Dispatcher() { stop(); }

ServiceResult<std::unique_ptr<Consumer>> Dispatcher::add(const Principal& who, std::string queue,
                                                         std::string worker, Deliver deliver, Ended ended) {
  const std::lock_guard lock{mutex_};
  if (draining_ || stopping_) {
    return std::unexpected(Problem{.code = Code::unavailable,
                                   .message = "this server stops",
                                   .hint = "use another one, or try again",
                                   .retry_after = milliseconds{1'000}});
  }
  if (!places_.has_room(who.account(), 1)) {
    const std::size_t mine = places_.taken_by(who.account());
    return std::unexpected(
        Problem{.code = Code::overloaded,
                .message = "there are " + std::to_string(places_.taken()) + " consumers already" +
                           (mine == 0 ? "" : ", " + std::to_string(mine) + " of them of this key"),
                .hint = "try again later, or at another server",
                .retry_after = milliseconds{1'000}});
  }
  std::unique_ptr<WaitList>& wait_list = wait_lists_[queue];
  if (!wait_list) wait_list = std::make_unique<WaitList>(std::move(queue));
  auto consumer = std::make_shared<ConsumerState>();
  consumer->wait_list = wait_list.get();
  consumer->who = who;
  consumer->worker = std::move(worker);
  consumer->deliver = std::move(deliver);
  consumer->ended = std::move(ended);
  consumer->place = consumers_.insert(consumers_.end(), consumer);
  places_.take(who.account(), 1);
  return std::make_unique<ConsumerHandle>(*this, std::move(consumer));
}

void Dispatcher::grant(ConsumerState& consumer, std::int64_t credit, std::int64_t sequence) {
  const std::lock_guard lock{mutex_};
  consumer.credit = std::max<std::int64_t>(credit, 0);
  consumer.sequence = sequence;
  update_waiting(consumer);
  // Whoever comes to a dry wait list wants to know how it is now, not how it was.
  WaitList& wait_list = *consumer.wait_list;
  if (std::exchange(consumer.fresh, false) && wait_list.dry) {
    disarm(wait_list);
    wait_list.due = std::min(wait_list.due, wait_list.looked_at + kPollMin);
  }
  arrange(wait_list);
}

/// Puts a consumer into the ring if it has credit left, and takes it out if it has none.
void Dispatcher::update_waiting(ConsumerState& consumer) {
  const bool should_wait = !consumer.gone && !consumer.refused && !consumer.busy && !draining_ &&
                           !stopping_ && consumer.credit > consumer.delivered;
  if (should_wait == consumer.waits) return;
  auto& ring = consumer.wait_list->ring;
  if (should_wait)
    consumer.turn = ring.insert(ring.end(), *consumer.place);
  else
    ring.erase(consumer.turn);
  consumer.waits = should_wait;
}

void Dispatcher::leave(const std::shared_ptr<ConsumerState>& consumer) {
  Lock lock{mutex_};
  consumer->gone = true;
  update_waiting(*consumer);
  delivered_.wait(lock, [&] { return !consumer->delivering; });
  consumers_.erase(consumer->place);
  places_.give_back(consumer->who.account(), 1);
}

void Dispatcher::wake(std::string_view queue) {
  const std::lock_guard lock{mutex_};
  if (const auto wait_list = wait_lists_.find(std::string{queue}); wait_list != wait_lists_.end())
    wake_consumers(*wait_list->second);
}

void Dispatcher::wake_all() {
  const std::lock_guard lock{mutex_};
  for (const auto& [name, wait_list] : wait_lists_) wake_consumers(*wait_list);
}

void Dispatcher::wake_consumers(WaitList& wait_list) {
  ++wait_list.wakes;
  wait_list.dry = false;
  wait_list.wait = kPollMin;
  arrange(wait_list);
}

std::size_t Dispatcher::consumers() const {
  const std::lock_guard lock{mutex_};
  return consumers_.size();
}

void Dispatcher::drain() {
  const std::lock_guard lock{mutex_};
  if (std::exchange(draining_, true)) return;
  for (const auto& consumer : consumers_) {
    update_waiting(*consumer);
    if (!consumer->busy && !consumer->gone) notices_.push_back(consumer);
  }
  changed_.notify_all();
}

void Dispatcher::stop() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

bool Dispatcher::runnable(const WaitList& wait_list) const {
  if (wait_list.ring.empty() || draining_) return false;
  return wait_list.under_way == 0 || (wait_list.flowing && !wait_list.dry);
}

void Dispatcher::disarm(WaitList& wait_list) {
  if (std::exchange(wait_list.has_timer, false)) timers_.erase({wait_list.due, &wait_list});
}

void Dispatcher::arrange(WaitList& wait_list) {
  disarm(wait_list);
  if (!runnable(wait_list)) return;
  if (!wait_list.dry || wait_list.due <= Clock::now()) {
    if (std::exchange(wait_list.is_ready, true)) return;
    ready_.push_back(&wait_list);
  } else {
    wait_list.has_timer = true;
    const auto timer = timers_.emplace(wait_list.due, &wait_list).first;
    if (timer != timers_.begin()) return;
  }
  if (idle_ > 0) changed_.notify_one();
}

Dispatcher::WaitList* Dispatcher::next_wait_list() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    WaitList& wait_list = *timers_.begin()->second;
    timers_.erase(timers_.begin());
    wait_list.has_timer = false;
    arrange(wait_list);
  }
  while (!ready_.empty()) {
    WaitList& wait_list = *ready_.front();
    ready_.pop_front();
    wait_list.is_ready = false;
    if (runnable(wait_list) && (!wait_list.dry || wait_list.due <= now)) return &wait_list;
    arrange(wait_list);
  }
  return nullptr;
}

void Dispatcher::wait(Lock& lock) {
  Clock::time_point until = Clock::time_point::max();
  if (!timers_.empty()) until = timers_.begin()->first;
  if (hooks_.still_good && !consumers_.empty()) until = std::min(until, keys_due_);
  ++idle_;
  if (until == Clock::time_point::max())
    changed_.wait(lock);
  else
    changed_.wait_until(lock, until);
  --idle_;
}

bool Dispatcher::look_at_keys() {
  const auto now = Clock::now();
  if (!hooks_.still_good || consumers_.empty() || now < keys_due_) return false;
  keys_due_ = now + kKeysEvery;
  for (const auto& consumer : consumers_) end_if_refused(consumer);
  return true;
}

bool Dispatcher::end_if_refused(const std::shared_ptr<ConsumerState>& consumer) {
  if (consumer->refused) return true;
  if (!hooks_.still_good) return false;
  consumer->refused = hooks_.still_good(consumer->who);
  if (!consumer->refused) return false;
  update_waiting(*consumer);
  if (!consumer->busy && !consumer->gone) notices_.push_back(consumer);
  return true;
}

void Dispatcher::work() {
  Lock lock{mutex_};
  while (!stopping_) {
    if (send_notice(lock) || look_at_keys()) continue;
    if (WaitList* const wait_list = next_wait_list())
      take_turn(lock, *wait_list);
    else
      wait(lock);
  }
}

void Dispatcher::take_turn(Lock& lock, WaitList& wait_list) {
  const std::shared_ptr<ConsumerState> consumer = wait_list.ring.front();
  if (end_if_refused(consumer)) return arrange(wait_list);
  consumer->busy = true;
  update_waiting(*consumer);
  const bool alone = wait_list.ring.empty() && wait_list.under_way == 0;
  ++wait_list.under_way;
  const auto limit = static_cast<std::size_t>(
      std::min(consumer->credit - consumer->delivered, alone ? kClaimMax : kQuantum));
  const std::uint64_t wakes = wait_list.wakes;
  const std::int64_t sequence = consumer->sequence;
  const ClaimRequest request{.queue = wait_list.name, .worker = consumer->worker, .limit = limit};
  arrange(wait_list);

  lock.unlock();
  auto jobs = hooks_.claim(request);
  lock.lock();

  --wait_list.under_way;
  note(wait_list, jobs, limit, wakes);
  arrange(wait_list);
  end_if_refused(consumer);
  if (jobs && !jobs->empty()) hand_over(lock, *consumer, std::move(*jobs), sequence);
  end_turn(consumer);
  arrange(wait_list);
}

void Dispatcher::note(WaitList& wait_list, const ServiceResult<std::vector<ClaimedJob>>& jobs,
                      std::size_t limit, std::uint64_t wakes) {
  const auto now = Clock::now();
  wait_list.looked_at = now;
  wait_list.flowing = jobs && jobs->size() == limit;
  // Under way while it looked, somebody said that there is more.
  const bool woken = wait_list.wakes != wakes;
  wait_list.dry = !wait_list.flowing && !(jobs && woken);
  if (!jobs)
    wait_list.wait = std::clamp(wait_list.wait * 2, kFailedMin, std::max(kFailedMin, options_.poll_max));
  else if (jobs->empty())
    wait_list.wait = std::min(wait_list.wait * 2, options_.poll_max);
  else
    wait_list.wait = kPollMin;
  disarm(wait_list);
  wait_list.due = now + wait_list.wait;
}

void Dispatcher::hand_over(Lock& lock, ConsumerState& consumer, std::vector<ClaimedJob> jobs,
                           std::int64_t sequence) {
  std::vector<Lease> leases;
  leases.reserve(jobs.size());
  for (const ClaimedJob& job : jobs) {
    leases.push_back(
        {.job = job.lease.job, .token = job.lease.token, .lease_id = job.lease.lease_id, .worker = {}});
  }
  bool taken = false;
  if (!consumer.gone && !consumer.refused && !stopping_) {
    consumer.delivering = true;
    consumer.delivered += static_cast<std::int64_t>(jobs.size());
    lock.unlock();
    taken = consumer.deliver(std::move(jobs), sequence);
    lock.lock();
    consumer.delivering = false;
    delivered_.notify_all();
  }
  if (taken) return;
  if (!consumer.refused) consumer.gone = true;
  const std::string worker = consumer.worker;
  lock.unlock();
  for (Lease& lease : leases) lease.worker = worker;
  hooks_.release(std::move(leases));
  lock.lock();
}

void Dispatcher::end_turn(const std::shared_ptr<ConsumerState>& consumer) {
  consumer->busy = false;
  update_waiting(*consumer);
  if ((!draining_ && !consumer->refused) || consumer->gone) return;
  notices_.push_back(consumer);
  if (idle_ > 0) changed_.notify_one();
}

bool Dispatcher::send_notice(Lock& lock) {
  if (notices_.empty()) return false;
  const std::shared_ptr<ConsumerState> consumer = std::move(notices_.front());
  notices_.pop_front();
  if (consumer->gone) return true;
  // Of two reasons to be told, the first is the last word.
  const std::optional<Problem> refused = consumer->refused;
  if (refused) consumer->gone = true;
  consumer->delivering = true;
  lock.unlock();
  if (!refused)
    static_cast<void>(consumer->deliver({}, -1));
  else if (consumer->ended)
    consumer->ended(*refused);
  lock.lock();
  consumer->delivering = false;
  delivered_.notify_all();
  return true;
}

}  // namespace faultline::service
