#include "worker/coordinator.h"

#include <algorithm>
#include <cmath>

namespace faultline::worker {
namespace {

/// The jobs of one statement: more make it hardly faster, and hold row locks longer.
constexpr std::size_t kGroup = 500;
/// How long an outcome waits for others while there is other work for the slots.
constexpr std::chrono::milliseconds kLinger{5};
/// After this time a slot that took several jobs is not waited for any longer.
constexpr std::chrono::milliseconds kFetch{10};
/// How long slots are kept free for a suspect: until nothing else runs, and then again while it does. What
/// brings a process down mostly does so at once, and long handlers must not cost the other slots more than
/// this.
constexpr std::chrono::milliseconds kRoom{10'000};
constexpr std::chrono::milliseconds kBackOffMin{50};
constexpr std::chrono::milliseconds kBackOffMax{500};

}  // namespace

Coordinator::Coordinator(const Options& options)
    : slots_(options.slots), tells_stages_(options.tells_stages) {
  unsigned weights = 0;
  for (const QueueShare& share : options.queues) weights += std::max(share.weight, 1U);
  for (const QueueShare& share : options.queues) {
    const unsigned weight = std::max(share.weight, 1U);
    queues_.emplace_back(QueueState::Options{
        .queue = share.queue,
        .concurrency = share.concurrency == 0 ? options.slots : std::min(share.concurrency, options.slots),
        .weight = weight,
        .prefetch_max = options.prefetch_max * weight / weights,
        .poll_max = options.poll_max});
  }
}

// Executors.

Coordinator::ResultBuffer::ResultBuffer(Coordinator& coordinator) : coordinator_(coordinator) {
  const std::lock_guard lock{coordinator_.mutex_};
  coordinator_.buffers_.push_back(this);
}

Coordinator::ResultBuffer::~ResultBuffer() {
  const std::lock_guard lock{coordinator_.mutex_};
  std::erase(coordinator_.buffers_, this);
}

bool Coordinator::next_jobs(ResultBuffer& buffer, std::vector<Attempt*>& jobs) {
  jobs.clear();
  std::vector<std::shared_ptr<Batch>> gone;  // destroyed after the lock is released
  std::unique_lock lock{mutex_};
  if (buffer.queue_index_) {
    --queues_[*buffer.queue_index_].busy;
    take_finished(buffer, gone);
    buffer.queue_index_.reset();
    buffer.taken_.clear();
    if (running() == 0) drained_.notify_all();
  }
  for (;;) {
    if (closed_) return false;
    if (take_suspect(buffer, jobs, gone)) return true;
    const bool room = makes_room(Clock::now());
    if (QueueState* queue = room ? nullptr : queue_to_run(gone)) {
      if (suspect_running_ != nullptr) suspect_running_->run_alone(false);
      const std::size_t count = std::min(queue->chunk(), queue->waiting.size());
      for (std::size_t i = 0; i < count; ++i) {
        jobs.push_back(queue->waiting.front());
        queue->waiting.pop_front();
      }
      ++queue->busy;
      buffer.queue_index_ = static_cast<std::size_t>(queue - queues_.data());
      buffer.left_ = count;
      if (count > 1) buffer.taken_ = jobs;
      if (count > 1) fetch_at_ = std::min(fetch_at_, Clock::now() + kFetch);
      virtual_time_ = std::max(queue->turn, virtual_time_);
      queue->turn = virtual_time_ + static_cast<double>(count) / queue->options().weight;
      // There is more than this slot takes: each slot wakes the next one.
      if (idle_slots_ > 0 && queue_to_run(gone) != nullptr) slots_changed_.notify_one();
      wake_claim_settler_if_due();
      return true;
    }
    wake_claim_settler_if_due();
    ++idle_slots_;
    if (room)
      slots_changed_.wait_until(lock, room_until_);
    else
      slots_changed_.wait(lock);
    --idle_slots_;
  }
}

bool Coordinator::makes_room(Clock::time_point now) const {
  return (!suspects_.empty() || suspect_running_ != nullptr) && now < room_until_;
}

bool Coordinator::take_suspect(ResultBuffer& buffer, std::vector<Attempt*>& jobs,
                               std::vector<std::shared_ptr<Batch>>& gone) {
  const Clock::time_point now = Clock::now();
  while (!suspects_.empty() && !suspects_.front()->is_waiting()) {
    --queues_[suspects_.front()->queue_index].suspects;
    let_go(*suspects_.front(), gone);
    suspects_.pop_front();
  }
  if (suspects_.empty() || suspect_running_ != nullptr) return false;
  QueueState& queue = queues_[suspects_.front()->queue_index];
  const bool alone = running() == 0;
  if ((!alone && now < room_until_) || !queue.may_have_a_slot()) return false;
  Attempt* suspect = suspects_.front();
  suspects_.pop_front();
  suspect->run_alone(alone);
  suspect_running_ = suspect;
  room_until_ = alone ? now + kRoom : now;
  --queue.suspects;
  ++queue.busy;
  buffer.queue_index_ = suspect->queue_index;
  buffer.suspect_ = suspect;
  buffer.left_ = 1;
  jobs.push_back(suspect);
  slots_changed_.notify_all();  // they wait, from now on, for no longer than this
  wake_claim_settler_if_due();
  return true;
}

void Coordinator::suspect_is_over(ResultBuffer& buffer) {
  suspect_running_ = nullptr;
  buffer.suspect_ = nullptr;
  if (!suspects_.empty()) room_until_ = Clock::now() + kRoom;
  slots_changed_.notify_all();
}

void Coordinator::take_finished(ResultBuffer& buffer, std::vector<std::shared_ptr<Batch>>& gone) {
  const std::lock_guard buffer_lock{buffer.mutex_};
  const Clock::time_point now = Clock::now();
  QueueState& queue = queues_[*buffer.queue_index_];  // all of one queue
  buffer.left_ -= buffer.finished_.size();
  for (Finished& done : buffer.finished_) {
    if (done.attempt == buffer.suspect_) suspect_is_over(buffer);
    if (done.took) queue.finished(now, *done.took);
    if (done.owns_outcome && done.outcome) add_outcome(*done.attempt, std::move(*done.outcome), now);
    if (done.owns_outcome && !done.outcome) let_go(*done.attempt, gone);
    let_go(*done.attempt, gone);
  }
  buffer.finished_.clear();
}

void Coordinator::fetch_finished(Clock::time_point now, std::vector<std::shared_ptr<Batch>>& gone) {
  fetch_at_ = Clock::time_point::max();
  for (ResultBuffer* buffer : buffers_) {
    if (!buffer->queue_index_) continue;
    take_finished(*buffer, gone);
    offer_to_others(*buffer);
    // The last one is brought by the slot itself.
    if (buffer->left_ > 1) fetch_at_ = now + kFetch;
  }
}

void Coordinator::offer_to_others(ResultBuffer& buffer) {
  // Whoever begins a job first has it; the other lets go of it.
  QueueState& queue = queues_[*buffer.queue_index_];
  const std::size_t first = buffer.taken_.size() - std::min(buffer.left_, buffer.taken_.size());
  for (std::size_t i = buffer.taken_.size(); i > first; --i) {
    Attempt* attempt = buffer.taken_[i - 1];
    if (!attempt->is_waiting()) continue;
    ++attempt->batch.holds;
    queue.waiting.push_front(attempt);
    if (idle_slots_ > 0) slots_changed_.notify_one();
  }
  buffer.taken_.clear();
}

void Coordinator::fetch_finished() {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  fetch_finished(Clock::now(), gone);
  wake_claim_settler_if_due();
}

void Coordinator::add_outcome(Attempt& attempt, Outcome outcome, Clock::time_point now) {
  if (outcomes_.empty()) oldest_outcome_ = now;
  if (!claiming_ && outcome.kind == Outcome::Kind::released) ++given_back_;
  outcomes_.push_back({.attempt = &attempt, .outcome = std::move(outcome)});
}

QueueState* Coordinator::queue_to_run(std::vector<std::shared_ptr<Batch>>& gone) {
  QueueState* next = nullptr;
  for (QueueState& queue : queues_) {
    while (!queue.waiting.empty() && !queue.waiting.front()->is_waiting()) {
      let_go(*queue.waiting.front(), gone);
      queue.waiting.pop_front();
    }
    if (queue.waiting.empty() || !queue.may_have_a_slot()) continue;
    if (next == nullptr || turn_of(queue) < turn_of(*next)) next = &queue;
  }
  return next;
}

// Claim settlers.

std::size_t Coordinator::wanted(const QueueState& queue, Clock::time_point now) const {
  if (makes_room(now)) return 0;
  const std::size_t ahead = queue.ahead(now);
  const std::size_t in_hand = queue.in_hand();
  const std::size_t most = queue.options().concurrency + ahead;
  if (in_hand >= most) return 0;
  if (ahead > 0) return most - in_hand;
  std::size_t all_in_hand = 0;
  // What waits in a queue that has all its slots takes none from the others.
  for (const QueueState& each : queues_) all_in_hand += std::min(each.in_hand(), each.options().concurrency);
  const std::size_t free = slots_ > all_in_hand ? slots_ - all_in_hand : 0;
  return std::min(free, most - in_hand);
}

std::optional<std::size_t> Coordinator::queue_to_claim(Clock::time_point now, bool along, std::size_t& limit,
                                                       Clock::time_point& wake) const {
  // Answers are sent anyway, and a claim that goes along costs little.
  const Clock::time_point soon = along ? now + kLinger : now;
  std::optional<std::size_t> next;
  double next_share = 0;
  unsigned weights = 0;
  for (std::size_t i = 0; i < queues_.size(); ++i) {
    const QueueState& queue = queues_[i];
    const std::size_t wants = wanted(queue, now);
    if (wants == 0) continue;
    // A queue that has jobs for its slots waits until a whole group is wanted, or half of all it may hold.
    const std::size_t whole = std::min(kGroup, (queue.options().concurrency + queue.ahead(now)) / 2);
    if (!along && !queue.waiting.empty() && wants < whole) continue;
    if (queue.poll_at() > soon) {
      wake = std::min(wake, queue.poll_at());
      continue;
    }
    weights += queue.options().weight;
    const double share = static_cast<double>(queue.in_hand()) / queue.options().weight;
    // With fewer slots than queues several have nothing in hand. Then it is the turn of the one that had
    // least.
    if (!next || std::pair{share, turn_of(queue)} < std::pair{next_share, turn_of(queues_[*next])}) {
      next = i;
      next_share = share;
    }
  }
  if (next) {
    const QueueState& queue = queues_[*next];
    limit = std::min(kGroup, wanted(queue, now));
    if (weights > queue.options().weight) {
      // Others want slots too, so this claim takes no more than its share.
      const double share = static_cast<double>(queue.options().weight) / weights;
      limit = static_cast<std::size_t>(std::ceil(static_cast<double>(limit) * share));
    }
  }
  return next;
}

Coordinator::Due Coordinator::due(Clock::time_point now) const {
  Due due{.wake = std::min(now + std::chrono::hours{1}, fetch_at_)};
  if (makes_room(now)) due.wake = std::min(due.wake, room_until_);
  if (now < back_off_until_) {
    due.wake = back_off_until_;
    return due;
  }
  const bool outcomes_due = !outcomes_.empty() && (outcomes_.size() >= kGroup || waiting() == 0 ||
                                                   !claiming_ || now - oldest_outcome_ >= kLinger);
  if (!outcomes_.empty() && !outcomes_due) due.wake = std::min(due.wake, oldest_outcome_ + kLinger);
  if (claiming_) due.queue_index = queue_to_claim(now, outcomes_due, due.limit, due.wake);
  due.now = outcomes_due || due.queue_index.has_value();
  return due;
}

void Coordinator::wake_claim_settler_if_due() {
  if (idle_claim_settlers_ == 0) return;
  const Due next = due(Clock::now());
  if (next.now || next.wake < claim_settler_wakes_at_) claim_settlers_changed_.notify_one();
}

bool Coordinator::take_work(const Due& next, Work& work) {
  work.outcomes.clear();
  work.claim.reset();
  if (!next.now) return false;
  take_outcomes(work.outcomes);
  if (next.queue_index) {
    QueueState& queue = queues_[*next.queue_index];
    const std::size_t slots = std::min(
        queue.options().concurrency - std::min(queue.busy, queue.options().concurrency), slots_ - running());
    work.claim = Claim{
        .queue_index = *next.queue_index,
        .queue = queue.options().queue,
        .limit = next.limit,
        .ahead = tells_stages_ && waiting() + queue.claiming + next.limit > slots,
        .suspects_max = suspects_.empty() && suspect_running_ == nullptr && !suspect_asked_for_ ? 1U : 0U};
    suspect_asked_for_ = suspect_asked_for_ || work.claim->suspects_max > 0;
    queue.claiming += next.limit;
    queue.claim_began();
  }
  if (work.outcomes.empty() && !work.claim) return false;
  wake_claim_settler_if_due();
  return true;
}

bool Coordinator::next_work(Work& work) {
  std::vector<std::shared_ptr<Batch>> gone;  // destroyed after the lock is released
  std::unique_lock lock{mutex_};
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (now >= fetch_at_) fetch_finished(now, gone);
    const Due next = due(now);
    if (take_work(next, work)) return true;
    if (closed_) return false;
    ++idle_claim_settlers_;
    // Due, and yet nothing to take: outcomes are held back by fenced calls, and looked at again when those
    // are over.
    const Clock::time_point wake = next.now ? now + kLinger : next.wake;
    claim_settler_wakes_at_ = std::min(claim_settler_wakes_at_, wake);
    claim_settlers_changed_.wait_until(lock, wake);
    claim_settler_wakes_at_ = Clock::time_point::max();  // the others' may be later
    --idle_claim_settlers_;
  }
}

void Coordinator::take_outcomes(std::vector<PendingOutcome>& outcomes) {
  std::vector<PendingOutcome> held_back;
  std::size_t i = 0;
  for (; i < outcomes_.size() && outcomes.size() < kGroup; ++i) {
    if (outcomes_[i].maybe_committed || outcomes_[i].attempt->try_close())
      outcomes.push_back(std::move(outcomes_[i]));
    else
      held_back.push_back(std::move(outcomes_[i]));
  }
  for (; i < outcomes_.size(); ++i) held_back.push_back(std::move(outcomes_[i]));
  outcomes_ = std::move(held_back);
  oldest_outcome_ = Clock::now();
  outcomes_in_flight_ += outcomes.size();
}

void Coordinator::claimed(const Claim& claim, std::vector<ClaimedJob> jobs, Clock::time_point sent_at) {
  std::shared_ptr<Batch> batch;
  if (!jobs.empty()) {
    batch = std::make_shared<Batch>();
    for (ClaimedJob& job : jobs)
      batch->attempts.emplace_back(std::move(job), claim.queue_index, sent_at, *batch);
    batch->holds = 2 * batch->attempts.size();
  }
  {
    const std::lock_guard lock{mutex_};
    const Clock::time_point now = Clock::now();
    QueueState& queue = queues_[claim.queue_index];
    claim_is_over(claim);
    queue.claim_ended(now, claim.limit, jobs.size());
    stats_.claimed += jobs.size();
    if (batch) {
      batches_.push_back(batch);
      for (Attempt& attempt : batch->attempts) {
        if (!claiming_ && attempt.take_away()) add_outcome(attempt, Outcome::release(), now);
        if (!attempt.job.suspect) {
          queue.waiting.push_back(&attempt);
          continue;
        }
        if (suspects_.empty() && suspect_running_ == nullptr) room_until_ = now + kRoom;
        suspects_.push_back(&attempt);
        ++queue.suspects;
        slots_changed_.notify_all();
      }
      if (idle_slots_ > 0) slots_changed_.notify_one();
    }
    wake_claim_settler_if_due();
    drained_.notify_all();
  }
  if (batch && on_new_batch) on_new_batch(*batch);
}

void Coordinator::claim_is_over(const Claim& claim) {
  queues_[claim.queue_index].claiming -= claim.limit;
  if (claim.suspects_max > 0) suspect_asked_for_ = false;
}

void Coordinator::claim_failed(const Claim& claim) {
  const std::lock_guard lock{mutex_};
  claim_is_over(claim);
  queues_[claim.queue_index].claim_failed(Clock::now());
  drained_.notify_all();
}

std::vector<Coordinator::Want> Coordinator::wants() const {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  std::vector<Want> wants;
  for (const QueueState& queue : queues_)
    wants.push_back({.queue = queue.options().queue, .limit = claiming_ ? wanted(queue, now) : 0});
  return wants;
}

void Coordinator::let_go(Attempt& attempt, std::vector<std::shared_ptr<Batch>>& gone) {
  if (--attempt.batch.holds > 0) return;
  const auto found = std::ranges::find(batches_, &attempt.batch, &std::shared_ptr<Batch>::get);
  gone.push_back(std::move(*found));
  *found = std::move(batches_.back());
  batches_.pop_back();
}

void Coordinator::settled(const std::vector<PendingOutcome>& outcomes, const WorkerStats& counted) {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  for (const PendingOutcome& pending : outcomes) let_go(*pending.attempt, gone);
  outcomes_in_flight_ -= outcomes.size();
  stats_.settled += counted.settled;
  stats_.released += counted.released;
  if (outcomes_.empty() && outcomes_in_flight_ == 0) drained_.notify_all();
}

void Coordinator::put_back(std::vector<PendingOutcome> outcomes) {
  const std::lock_guard lock{mutex_};
  outcomes_in_flight_ -= outcomes.size();
  if (closed_) return;  // it was counted as unsettled, and a claim settler that goes on would try for ever
  if (outcomes_.empty()) oldest_outcome_ = Clock::now();
  for (PendingOutcome& pending : outcomes) {
    // What may be through stays closed: a beat would be refused.
    if (!pending.maybe_committed) pending.attempt->reopen();
    outcomes_.push_back(std::move(pending));
  }
}

void Coordinator::back_off() {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  if (now < back_off_until_) return;
  back_off_ = std::clamp(back_off_ * 2, kBackOffMin, kBackOffMax);
  // Full jitter: a fleet that lost its database together does not come back together.
  std::uniform_int_distribution<std::int64_t> spread{kBackOffMin.count(), back_off_.count()};
  back_off_until_ = now + std::chrono::milliseconds{spread(jitter_)};
  // Whoever failed may be the listener, which does not come back by itself: a claim settler does,
  // when the time is over.
  wake_claim_settler_if_due();
}

void Coordinator::resume() {
  const std::lock_guard lock{mutex_};
  if (back_off_.count() == 0) return;
  back_off_ = {};
  back_off_until_ = {};
  claim_settlers_changed_.notify_all();
}

// Others.

void Coordinator::add_outcome(Attempt& attempt, Outcome outcome) {
  const std::lock_guard lock{mutex_};
  add_outcome(attempt, std::move(outcome), Clock::now());
  wake_claim_settler_if_due();
}

void Coordinator::drop(Attempt& attempt) {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  let_go(attempt, gone);
}

std::vector<std::shared_ptr<Batch>> Coordinator::batches() const {
  const std::lock_guard lock{mutex_};
  return batches_;
}

void Coordinator::fenced_calls_over() {
  const std::lock_guard lock{mutex_};
  if (!outcomes_.empty()) claim_settlers_changed_.notify_one();
}

bool Coordinator::announced(std::string_view name, Work& work) {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  for (QueueState& queue : queues_) {
    if (queue.options().queue == name) queue.announced(now);
  }
  return idle_claim_settlers_ > 0 && take_work(due(now), work);
}

void Coordinator::announced_all() {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  for (QueueState& queue : queues_) queue.announced(now);
  wake_claim_settler_if_due();
}

// Drain.

void Coordinator::stop_claiming() {
  const std::lock_guard lock{mutex_};
  claiming_ = false;
  claim_settlers_changed_.notify_all();
}

bool Coordinator::claims_stopped() const {
  const std::lock_guard lock{mutex_};
  return !claiming_;
}

std::size_t Coordinator::given_back() const {
  const std::lock_guard lock{mutex_};
  return given_back_;
}

bool Coordinator::wait_for_handlers(Clock::time_point until) {
  std::unique_lock lock{mutex_};
  drained_.wait_until(lock, until, [&] { return running() == 0 || hurried_; });
  return running() == 0;
}

void Coordinator::hurry() {
  const std::lock_guard lock{mutex_};
  hurried_ = true;
  drained_.notify_all();
}

std::size_t Coordinator::wait_for_outcomes(Clock::time_point until) {
  std::unique_lock lock{mutex_};
  const auto open = [&] {
    std::size_t claims = 0;
    for (const QueueState& queue : queues_) claims += queue.claiming;
    return outcomes_.size() + outcomes_in_flight_ + claims;
  };
  drained_.wait_until(lock, until, [&] { return open() == 0; });
  return outcomes_.size() + outcomes_in_flight_;
}

void Coordinator::close() {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  outcomes_.clear();  // a claim settler that goes on would try for ever
  slots_changed_.notify_all();
  claim_settlers_changed_.notify_all();
}

std::size_t Coordinator::waiting() const {
  std::size_t sum = 0;
  for (const QueueState& queue : queues_) sum += queue.waiting.size();
  return sum;
}

std::size_t Coordinator::running() const {
  std::size_t sum = 0;
  for (const QueueState& queue : queues_) sum += queue.busy;
  return sum;
}

WorkerStats Coordinator::stats() const {
  const std::lock_guard lock{mutex_};
  WorkerStats stats = stats_;
  stats.running = running();
  stats.waiting = waiting() + suspects_.size();
  return stats;
}

void Coordinator::count_settled(Outcome::Kind outcome) {
  const std::lock_guard lock{mutex_};
  ++stats_.settled;
  if (outcome == Outcome::Kind::released) ++stats_.released;
}

void Coordinator::count_stale(std::size_t stale) {
  const std::lock_guard lock{mutex_};
  stats_.stale += stale;
}

}  // namespace faultline::worker
