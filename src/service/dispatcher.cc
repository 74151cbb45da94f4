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

}  // namespace

struct Dispatcher::Line {
  explicit Line(std::string queue) : name(std::move(queue)) {}

  const std::string name;
  std::list<std::shared_ptr<Seat>> ring;  // those with credit and no claim under way; the front is next
  std::size_t under_way = 0;              // claims
  bool dry = false;                       // the last claim came back short: the next look is at `due`
  bool flowing = false;                   // the last claim came back full
  std::uint64_t wakes = 0;
  Clock::time_point due{};
  Clock::time_point looked_at{};
  milliseconds wait = kPollMin;
  bool is_ready = false;  // stands in ready_
  bool has_timer = false;
};

struct Dispatcher::Seat {
  Line* line = nullptr;
  std::string worker;
  Deliver deliver;
  std::int64_t credit = 0;
  std::int64_t delivered = 0;
  std::int64_t sequence = 0;
  std::list<std::shared_ptr<Seat>>::iterator place;  // in seats_
  std::list<std::shared_ptr<Seat>>::iterator turn;   // in the ring, if it waits
  bool waits = false;                                // stands in the ring
  bool busy = false;                                 // a claim or a delivery is under way
  bool delivering = false;
  bool gone = false;
  bool fresh = true;  // was never granted anything
};

class Dispatcher::Handle : public Consumer {
 public:
  Handle(Dispatcher& dispatcher, std::shared_ptr<Seat> seat)
      : dispatcher_(dispatcher), seat_(std::move(seat)) {}
  ~Handle() override { dispatcher_.leave(seat_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  void grant(std::int64_t credit, std::int64_t sequence) override {
    dispatcher_.grant(*seat_, credit, sequence);
  }

 private:
  Dispatcher& dispatcher_;
  std::shared_ptr<Seat> seat_;
};

Dispatcher::Dispatcher(Options options, Hooks hooks) : options_(options), hooks_(std::move(hooks)) {
  for (std::size_t i = 0; i < options_.claimers; ++i) threads_.emplace_back([this] { work(); });
}

Dispatcher::~Dispatcher() { stop(); }

Answer<std::unique_ptr<Consumer>> Dispatcher::add(std::string queue, std::string worker, Deliver deliver) {
  const std::lock_guard lock{mutex_};
  if (draining_ || stopping_) {
    return std::unexpected(Problem{.code = Code::unavailable,
                                   .message = "this server stops",
                                   .hint = "use another one, or try again",
                                   .retry_after = milliseconds{1'000}});
  }
  if (seats_.size() >= options_.consumers_max) {
    return std::unexpected(
        Problem{.code = Code::overloaded,
                .message = "there are " + std::to_string(seats_.size()) + " consumers already",
                .hint = "try again later, or at another server",
                .retry_after = milliseconds{1'000}});
  }
  std::unique_ptr<Line>& line = lines_[queue];
  if (!line) line = std::make_unique<Line>(std::move(queue));
  auto seat = std::make_shared<Seat>();
  seat->line = line.get();
  seat->worker = std::move(worker);
  seat->deliver = std::move(deliver);
  seat->place = seats_.insert(seats_.end(), seat);
  return std::make_unique<Handle>(*this, std::move(seat));
}

void Dispatcher::grant(Seat& seat, std::int64_t credit, std::int64_t sequence) {
  const std::lock_guard lock{mutex_};
  seat.credit = std::max<std::int64_t>(credit, 0);
  seat.sequence = sequence;
  stand_in(seat);
  // Whoever comes to a dry line wants to know how it is now, not how it was.
  Line& line = *seat.line;
  if (std::exchange(seat.fresh, false) && line.dry) {
    disarm(line);
    line.due = std::min(line.due, line.looked_at + kPollMin);
  }
  arrange(line);
}

/// Puts a seat into the ring if it has credit left, and takes it out if it has none.
void Dispatcher::stand_in(Seat& seat) {
  const bool should_wait =
      !seat.gone && !seat.busy && !draining_ && !stopping_ && seat.credit > seat.delivered;
  if (should_wait == seat.waits) return;
  auto& ring = seat.line->ring;
  if (should_wait)
    seat.turn = ring.insert(ring.end(), *seat.place);
  else
    ring.erase(seat.turn);
  seat.waits = should_wait;
}

void Dispatcher::leave(const std::shared_ptr<Seat>& seat) {
  Lock lock{mutex_};
  seat->gone = true;
  stand_in(*seat);
  delivered_.wait(lock, [&] { return !seat->delivering; });
  seats_.erase(seat->place);
}

void Dispatcher::wake(std::string_view queue) {
  const std::lock_guard lock{mutex_};
  if (const auto line = lines_.find(std::string{queue}); line != lines_.end()) wake_line(*line->second);
}

void Dispatcher::wake_all() {
  const std::lock_guard lock{mutex_};
  for (const auto& [name, line] : lines_) wake_line(*line);
}

void Dispatcher::wake_line(Line& line) {
  ++line.wakes;
  line.dry = false;
  line.wait = kPollMin;
  arrange(line);
}

std::size_t Dispatcher::consumers() const {
  const std::lock_guard lock{mutex_};
  return seats_.size();
}

void Dispatcher::drain() {
  const std::lock_guard lock{mutex_};
  if (std::exchange(draining_, true)) return;
  for (const auto& seat : seats_) {
    stand_in(*seat);
    if (!seat->busy && !seat->gone) farewells_.push_back(seat);
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

bool Dispatcher::runnable(const Line& line) const {
  if (line.ring.empty() || draining_) return false;
  return line.under_way == 0 || (line.flowing && !line.dry);
}

void Dispatcher::disarm(Line& line) {
  if (std::exchange(line.has_timer, false)) timers_.erase({line.due, &line});
}

void Dispatcher::arrange(Line& line) {
  disarm(line);
  if (!runnable(line)) return;
  if (!line.dry || line.due <= Clock::now()) {
    if (std::exchange(line.is_ready, true)) return;
    ready_.push_back(&line);
  } else {
    line.has_timer = true;
    const auto timer = timers_.emplace(line.due, &line).first;
    if (timer != timers_.begin()) return;
  }
  if (idle_ > 0) changed_.notify_one();
}

Dispatcher::Line* Dispatcher::next_line() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Line& line = *timers_.begin()->second;
    timers_.erase(timers_.begin());
    line.has_timer = false;
    arrange(line);
  }
  while (!ready_.empty()) {
    Line& line = *ready_.front();
    ready_.pop_front();
    line.is_ready = false;
    if (runnable(line) && (!line.dry || line.due <= now)) return &line;
    arrange(line);
  }
  return nullptr;
}

void Dispatcher::wait(Lock& lock) {
  ++idle_;
  if (timers_.empty()) {
    changed_.wait(lock);
  } else {
    const Clock::time_point until = timers_.begin()->first;  // the timer may be gone when the wait ends
    changed_.wait_until(lock, until);
  }
  --idle_;
}

void Dispatcher::work() {
  Lock lock{mutex_};
  while (!stopping_) {
    if (say_farewell(lock)) continue;
    if (Line* const line = next_line())
      take_turn(lock, *line);
    else
      wait(lock);
  }
}

void Dispatcher::take_turn(Lock& lock, Line& line) {
  const std::shared_ptr<Seat> seat = line.ring.front();
  seat->busy = true;
  stand_in(*seat);
  const bool alone = line.ring.empty() && line.under_way == 0;
  ++line.under_way;
  const auto limit =
      static_cast<std::size_t>(std::min(seat->credit - seat->delivered, alone ? kClaimMax : kQuantum));
  const std::uint64_t wakes = line.wakes;
  const std::int64_t sequence = seat->sequence;
  const ClaimRequest request{.queue = line.name, .worker = seat->worker, .limit = limit};
  arrange(line);

  lock.unlock();
  auto jobs = hooks_.claim(request);
  lock.lock();

  --line.under_way;
  note(line, jobs, limit, wakes);
  arrange(line);
  if (jobs && !jobs->empty()) hand_over(lock, *seat, std::move(*jobs), sequence);
  sit_down(seat);
  arrange(line);
}

void Dispatcher::note(Line& line, const Answer<std::vector<ClaimedJob>>& jobs, std::size_t limit,
                      std::uint64_t wakes) {
  const auto now = Clock::now();
  line.looked_at = now;
  line.flowing = jobs && jobs->size() == limit;
  // Under way while it looked, somebody said that there is more.
  const bool woken = line.wakes != wakes;
  line.dry = !line.flowing && !(jobs && woken);
  if (!jobs)
    line.wait = std::clamp(line.wait * 2, kFailedMin, std::max(kFailedMin, options_.poll_max));
  else if (jobs->empty())
    line.wait = std::min(line.wait * 2, options_.poll_max);
  else
    line.wait = kPollMin;
  disarm(line);
  line.due = now + line.wait;
}

void Dispatcher::hand_over(Lock& lock, Seat& seat, std::vector<ClaimedJob> jobs, std::int64_t sequence) {
  std::vector<Lease> leases;
  leases.reserve(jobs.size());
  for (const ClaimedJob& job : jobs) {
    leases.push_back(
        {.job = job.lease.job, .token = job.lease.token, .lease_id = job.lease.lease_id, .worker = {}});
  }
  bool taken = false;
  if (!seat.gone && !stopping_) {
    seat.delivering = true;
    seat.delivered += static_cast<std::int64_t>(jobs.size());
    lock.unlock();
    taken = seat.deliver(std::move(jobs), sequence);
    lock.lock();
    seat.delivering = false;
    delivered_.notify_all();
  }
  if (taken) return;
  seat.gone = true;
  const std::string worker = seat.worker;
  lock.unlock();
  for (Lease& lease : leases) lease.worker = worker;
  hooks_.release(std::move(leases));
  lock.lock();
}

void Dispatcher::sit_down(const std::shared_ptr<Seat>& seat) {
  seat->busy = false;
  stand_in(*seat);
  if (!draining_ || seat->gone) return;
  farewells_.push_back(seat);
  if (idle_ > 0) changed_.notify_one();
}

bool Dispatcher::say_farewell(Lock& lock) {
  if (farewells_.empty()) return false;
  const std::shared_ptr<Seat> seat = std::move(farewells_.front());
  farewells_.pop_front();
  if (seat->gone) return true;
  seat->delivering = true;
  lock.unlock();
  static_cast<void>(seat->deliver({}, -1));
  lock.lock();
  seat->delivering = false;
  delivered_.notify_all();
  return true;
}

}  // namespace faultline::service
