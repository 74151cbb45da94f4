#include "worker/board.h"

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
constexpr std::chrono::milliseconds kRestMin{50};
constexpr std::chrono::milliseconds kRestMax{5'000};

}  // namespace

Board::Board(const Options& options) : slots_(options.slots) {
  unsigned weights = 0;
  for (const QueueShare& share : options.queues) weights += std::max(share.weight, 1U);
  for (const QueueShare& share : options.queues) {
    const unsigned weight = std::max(share.weight, 1U);
    lanes_.emplace_back(Lane::Options{
        .queue = share.queue,
        .concurrency = share.concurrency == 0 ? options.slots : std::min(share.concurrency, options.slots),
        .weight = weight,
        .prefetch_max = options.prefetch_max * weight / weights,
        .poll_max = options.poll_max});
  }
}

// Slots.

Board::Tray::Tray(Board& board) : board_(board) {
  const std::lock_guard lock{board_.mutex_};
  board_.trays_.push_back(this);
}

Board::Tray::~Tray() {
  const std::lock_guard lock{board_.mutex_};
  std::erase(board_.trays_, this);
}

bool Board::next_jobs(Tray& tray, std::vector<Attempt*>& jobs) {
  jobs.clear();
  std::vector<std::shared_ptr<Batch>> gone;  // destroyed behind the lock
  std::unique_lock lock{mutex_};
  if (tray.lane_) {
    --lanes_[*tray.lane_].busy;
    take_finished(tray, gone);
    tray.lane_.reset();
    tray.taken_.clear();
    if (running() == 0) drained_.notify_all();
  }
  for (;;) {
    if (closed_) return false;
    if (Lane* lane = lane_to_run(gone)) {
      const std::size_t count = std::min(lane->chunk(), lane->waiting.size());
      for (std::size_t i = 0; i < count; ++i) {
        jobs.push_back(lane->waiting.front());
        lane->waiting.pop_front();
      }
      ++lane->busy;
      tray.lane_ = static_cast<std::size_t>(lane - lanes_.data());
      tray.left_ = count;
      if (count > 1) tray.taken_ = jobs;
      if (count > 1) fetch_at_ = std::min(fetch_at_, Clock::now() + kFetch);
      virtual_time_ = std::max(lane->turn, virtual_time_);
      lane->turn = virtual_time_ + static_cast<double>(count) / lane->options().weight;
      // There is more than this slot takes: each slot wakes the next one.
      if (idle_slots_ > 0 && lane_to_run(gone) != nullptr) slots_changed_.notify_one();
      wake_pump_if_due();
      return true;
    }
    wake_pump_if_due();
    ++idle_slots_;
    slots_changed_.wait(lock);
    --idle_slots_;
  }
}

void Board::take_finished(Tray& tray, std::vector<std::shared_ptr<Batch>>& gone) {
  const std::lock_guard tray_lock{tray.mutex_};
  const Clock::time_point now = Clock::now();
  Lane& lane = lanes_[*tray.lane_];  // a slot's jobs are of one lane
  tray.left_ -= tray.finished_.size();
  for (Finished& done : tray.finished_) {
    if (done.took) lane.finished(now, *done.took);
    if (done.answered && done.outcome) add_answer(*done.attempt, std::move(*done.outcome), now);
    if (done.answered && !done.outcome) let_go(*done.attempt, gone);
    let_go(*done.attempt, gone);
  }
  tray.finished_.clear();
}

void Board::fetch_finished(Clock::time_point now, std::vector<std::shared_ptr<Batch>>& gone) {
  fetch_at_ = Clock::time_point::max();
  for (Tray* tray : trays_) {
    if (!tray->lane_) continue;
    take_finished(*tray, gone);
    offer_to_others(*tray);
    // The last one is brought by the slot itself.
    if (tray->left_ > 1) fetch_at_ = now + kFetch;
  }
}

void Board::offer_to_others(Tray& tray) {
  // Whoever begins a job first has it; the other lets go of it.
  Lane& lane = lanes_[*tray.lane_];
  const std::size_t first = tray.taken_.size() - std::min(tray.left_, tray.taken_.size());
  for (std::size_t i = tray.taken_.size(); i > first; --i) {
    Attempt* attempt = tray.taken_[i - 1];
    if (!attempt->is_waiting()) continue;
    ++attempt->batch.holds;
    lane.waiting.push_front(attempt);
    if (idle_slots_ > 0) slots_changed_.notify_one();
  }
  tray.taken_.clear();
}

void Board::fetch_finished() {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  fetch_finished(Clock::now(), gone);
  wake_pump_if_due();
}

void Board::add_answer(Attempt& attempt, Outcome outcome, Clock::time_point now) {
  if (answers_.empty()) oldest_answer_ = now;
  if (!claiming_ && outcome.kind == Outcome::Kind::released) ++given_back_;
  answers_.push_back({.attempt = &attempt, .outcome = std::move(outcome)});
}

Lane* Board::lane_to_run(std::vector<std::shared_ptr<Batch>>& gone) {
  Lane* next = nullptr;
  for (Lane& lane : lanes_) {
    while (!lane.waiting.empty() && !lane.waiting.front()->is_waiting()) {
      let_go(*lane.waiting.front(), gone);
      lane.waiting.pop_front();
    }
    if (lane.waiting.empty() || !lane.may_have_a_slot()) continue;
    // A lane that was empty for a while has no claim to what it did not use.
    if (next == nullptr || std::max(lane.turn, virtual_time_) < std::max(next->turn, virtual_time_))
      next = &lane;
  }
  return next;
}

// Pumps.

std::size_t Board::wanted(const Lane& lane, Clock::time_point now) const {
  const std::size_t ahead = lane.ahead(now);
  const std::size_t in_hand = lane.in_hand();
  const std::size_t most = lane.options().concurrency + ahead;
  if (in_hand >= most) return 0;
  if (ahead > 0) return most - in_hand;
  std::size_t all_in_hand = 0;
  // What waits in a lane that has all its slots takes none from the others.
  for (const Lane& each : lanes_) all_in_hand += std::min(each.in_hand(), each.options().concurrency);
  const std::size_t free = slots_ > all_in_hand ? slots_ - all_in_hand : 0;
  return std::min(free, most - in_hand);
}

std::optional<std::size_t> Board::lane_to_claim(Clock::time_point now, bool along, std::size_t& limit,
                                                Clock::time_point& wake) const {
  // Answers are sent anyway, and a claim that goes along costs little.
  const Clock::time_point soon = along ? now + kLinger : now;
  std::optional<std::size_t> next;
  double next_share = 0;
  unsigned weights = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    const std::size_t wants = wanted(lane, now);
    if (wants == 0) continue;
    // A lane that has jobs for its slots waits until a whole group is wanted, or half of all it may hold.
    const std::size_t whole = std::min(kGroup, (lane.options().concurrency + lane.ahead(now)) / 2);
    if (!along && !lane.waiting.empty() && wants < whole) continue;
    if (lane.look_at() > soon) {
      wake = std::min(wake, lane.look_at());
      continue;
    }
    weights += lane.options().weight;
    const double share = static_cast<double>(lane.in_hand()) / lane.options().weight;
    if (!next || share < next_share) {
      next = i;
      next_share = share;
    }
  }
  if (next) {
    const Lane& lane = lanes_[*next];
    limit = std::min(kGroup, wanted(lane, now));
    if (weights > lane.options().weight) {
      // Others want slots too, so this claim takes no more than its share.
      const double share = static_cast<double>(lane.options().weight) / weights;
      limit = static_cast<std::size_t>(std::ceil(static_cast<double>(limit) * share));
    }
  }
  return next;
}

Board::Due Board::due(Clock::time_point now) const {
  Due due{.wake = std::min(now + std::chrono::hours{1}, fetch_at_)};
  if (now < rest_until_) {
    due.wake = rest_until_;
    return due;
  }
  const bool answers_due = !answers_.empty() && (answers_.size() >= kGroup || waiting() == 0 || !claiming_ ||
                                                 now - oldest_answer_ >= kLinger);
  if (!answers_.empty() && !answers_due) due.wake = std::min(due.wake, oldest_answer_ + kLinger);
  if (claiming_) due.lane = lane_to_claim(now, answers_due, due.limit, due.wake);
  due.now = answers_due || due.lane.has_value();
  return due;
}

void Board::wake_pump_if_due() {
  if (idle_pumps_ == 0) return;
  const Due next = due(Clock::now());
  if (next.now || next.wake < pump_wakes_at_) pumps_changed_.notify_one();
}

bool Board::take_work(const Due& next, Work& work) {
  work.answers.clear();
  work.claim.reset();
  if (!next.now) return false;
  take_answers(work.answers);
  if (next.lane) {
    Lane& lane = lanes_[*next.lane];
    lane.claiming += next.limit;
    lane.claim_began();
    work.claim = Claim{.lane = *next.lane, .queue = lane.options().queue, .limit = next.limit};
  }
  if (work.answers.empty() && !work.claim) return false;
  wake_pump_if_due();
  return true;
}

bool Board::next_work(Work& work) {
  std::vector<std::shared_ptr<Batch>> gone;  // destroyed behind the lock
  std::unique_lock lock{mutex_};
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (now >= fetch_at_) fetch_finished(now, gone);
    const Due next = due(now);
    if (take_work(next, work)) return true;
    if (closed_) return false;
    ++idle_pumps_;
    // Due, and yet nothing to take: answers are held back by visits, and looked at again when those are over.
    const Clock::time_point wake = next.now ? now + kLinger : next.wake;
    pump_wakes_at_ = std::min(pump_wakes_at_, wake);
    pumps_changed_.wait_until(lock, wake);
    pump_wakes_at_ = Clock::time_point::max();  // the others' may be later
    --idle_pumps_;
  }
}

void Board::take_answers(std::vector<Answer>& answers) {
  std::vector<Answer> held_back;
  std::size_t i = 0;
  for (; i < answers_.size() && answers.size() < kGroup; ++i) {
    if (answers_[i].maybe_committed || answers_[i].attempt->try_close())
      answers.push_back(std::move(answers_[i]));
    else
      held_back.push_back(std::move(answers_[i]));
  }
  for (; i < answers_.size(); ++i) held_back.push_back(std::move(answers_[i]));
  answers_ = std::move(held_back);
  oldest_answer_ = Clock::now();
  answers_on_their_way_ += answers.size();
}

void Board::claimed(const Claim& claim, std::vector<ClaimedJob> jobs, Clock::time_point sent_at) {
  std::shared_ptr<Batch> batch;
  if (!jobs.empty()) {
    batch = std::make_shared<Batch>();
    for (ClaimedJob& job : jobs) batch->attempts.emplace_back(std::move(job), claim.lane, sent_at, *batch);
    batch->holds = 2 * batch->attempts.size();
  }
  {
    const std::lock_guard lock{mutex_};
    const Clock::time_point now = Clock::now();
    Lane& lane = lanes_[claim.lane];
    lane.claiming -= claim.limit;
    lane.claim_ended(now, claim.limit, jobs.size());
    stats_.claimed += jobs.size();
    if (batch) {
      batches_.push_back(batch);
      for (Attempt& attempt : batch->attempts) {
        if (!claiming_ && attempt.take_away()) add_answer(attempt, Outcome::release(), now);
        lane.waiting.push_back(&attempt);
      }
      if (idle_slots_ > 0) slots_changed_.notify_one();
    }
    wake_pump_if_due();
    drained_.notify_all();
  }
  if (batch && on_new_batch) on_new_batch(*batch);
}

void Board::claim_failed(const Claim& claim) {
  const std::lock_guard lock{mutex_};
  Lane& lane = lanes_[claim.lane];
  lane.claiming -= claim.limit;
  lane.claim_failed(Clock::now());
  drained_.notify_all();
}

std::vector<Board::Want> Board::wants() const {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  std::vector<Want> wants;
  for (const Lane& lane : lanes_)
    wants.push_back({.queue = lane.options().queue, .limit = claiming_ ? wanted(lane, now) : 0});
  return wants;
}

void Board::let_go(Attempt& attempt, std::vector<std::shared_ptr<Batch>>& gone) {
  if (--attempt.batch.holds > 0) return;
  const auto found = std::ranges::find(batches_, &attempt.batch, &std::shared_ptr<Batch>::get);
  gone.push_back(std::move(*found));
  *found = std::move(batches_.back());
  batches_.pop_back();
}

void Board::settled(const std::vector<Answer>& answers, std::size_t committed) {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  for (const Answer& answer : answers) let_go(*answer.attempt, gone);
  answers_on_their_way_ -= answers.size();
  stats_.settled += committed;
  if (answers_.empty() && answers_on_their_way_ == 0) drained_.notify_all();
}

void Board::put_back(std::vector<Answer> answers) {
  const std::lock_guard lock{mutex_};
  answers_on_their_way_ -= answers.size();
  if (closed_) return;  // it was counted as unsettled, and a pump that goes on would try for ever
  if (answers_.empty()) oldest_answer_ = Clock::now();
  for (Answer& answer : answers) {
    // What may be through stays closed: a beat would be refused.
    if (!answer.maybe_committed) answer.attempt->reopen();
    answers_.push_back(std::move(answer));
  }
}

bool Board::rest() {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  if (now < rest_until_) return false;
  const bool is_new = rest_.count() == 0;
  rest_ = std::clamp(rest_ * 2, kRestMin, kRestMax);
  // Full jitter: a fleet that lost its database together does not come back together.
  std::uniform_int_distribution<std::int64_t> spread{kRestMin.count(), rest_.count()};
  rest_until_ = now + std::chrono::milliseconds{spread(jitter_)};
  // Whoever failed may be the listener, which does not come back by itself: a pump does, when the rest is
  // over.
  wake_pump_if_due();
  return is_new;
}

bool Board::go_on() {
  const std::lock_guard lock{mutex_};
  const bool had_been_gone = rest_.count() > 0;
  rest_ = {};
  rest_until_ = {};
  if (had_been_gone) pumps_changed_.notify_all();
  return had_been_gone;
}

// Others.

void Board::answer(Attempt& attempt, Outcome outcome) {
  const std::lock_guard lock{mutex_};
  add_answer(attempt, std::move(outcome), Clock::now());
  wake_pump_if_due();
}

void Board::drop(Attempt& attempt) {
  std::vector<std::shared_ptr<Batch>> gone;
  const std::lock_guard lock{mutex_};
  let_go(attempt, gone);
}

std::vector<std::shared_ptr<Batch>> Board::batches() const {
  const std::lock_guard lock{mutex_};
  return batches_;
}

void Board::visits_over() {
  const std::lock_guard lock{mutex_};
  if (!answers_.empty()) pumps_changed_.notify_one();
}

bool Board::announced(std::string_view queue, Work& work) {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  for (Lane& lane : lanes_) {
    if (lane.options().queue == queue) lane.announced(now);
  }
  return idle_pumps_ > 0 && take_work(due(now), work);
}

void Board::announced_all() {
  const std::lock_guard lock{mutex_};
  const Clock::time_point now = Clock::now();
  for (Lane& lane : lanes_) lane.announced(now);
  wake_pump_if_due();
}

// Drain.

void Board::stop_claiming() {
  const std::lock_guard lock{mutex_};
  claiming_ = false;
  pumps_changed_.notify_all();
}

bool Board::claims_stopped() const {
  const std::lock_guard lock{mutex_};
  return !claiming_;
}

std::size_t Board::given_back() const {
  const std::lock_guard lock{mutex_};
  return given_back_;
}

bool Board::wait_for_handlers(Clock::time_point until) {
  std::unique_lock lock{mutex_};
  drained_.wait_until(lock, until, [&] { return running() == 0 || hurried_; });
  return running() == 0;
}

void Board::hurry() {
  const std::lock_guard lock{mutex_};
  hurried_ = true;
  drained_.notify_all();
}

std::size_t Board::wait_for_answers(Clock::time_point until) {
  std::unique_lock lock{mutex_};
  const auto open = [&] {
    std::size_t claims = 0;
    for (const Lane& lane : lanes_) claims += lane.claiming;
    return answers_.size() + answers_on_their_way_ + claims;
  };
  drained_.wait_until(lock, until, [&] { return open() == 0; });
  return answers_.size() + answers_on_their_way_;
}

void Board::close() {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  answers_.clear();  // a pump that goes on would try for ever
  slots_changed_.notify_all();
  pumps_changed_.notify_all();
}

std::size_t Board::waiting() const {
  std::size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.waiting.size();
  return sum;
}

std::size_t Board::running() const {
  std::size_t sum = 0;
  for (const Lane& lane : lanes_) sum += lane.busy;
  return sum;
}

WorkerStats Board::stats() const {
  const std::lock_guard lock{mutex_};
  WorkerStats stats = stats_;
  stats.running = running();
  stats.waiting = waiting();
  return stats;
}

void Board::count_settled() {
  const std::lock_guard lock{mutex_};
  ++stats_.settled;
}

void Board::count_stale(std::size_t stale) {
  const std::lock_guard lock{mutex_};
  stats_.stale += stale;
}

}  // namespace faultline::worker
